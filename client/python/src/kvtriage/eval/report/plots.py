"""Pictures of a store's results, as SVG with text left as text (small, and searchable)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from kvtriage.eval.cases import SCORERS, Case, parse_label, table_order
from kvtriage.eval.measures.recall import SCORERS as RECALLED
from kvtriage.eval.measures.retrieval import FULL, SETTINGS
from kvtriage.eval.report.divergence import budgets_of
from kvtriage.eval.report.recall import windows_of
from kvtriage.eval.results import Results
from kvtriage.eval.statistics import Interval
from kvtriage.eval.store import Store

matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kvtriage", "font.size": 9})
SLIM: dict[str, Any] = {"linewidth": 1.2, "markersize": 4}


def draw(store: Store, seed: int, folder: Path) -> dict[str, Path]:
    """Draws what the store has; returns title -> file."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for title, name, make in (
        ("KL divergence of other scorers less the host's", "divergence.svg", _differences),
        ("Retrieval by budget", "retrieval.svg", _retrieval),
        ("Recall of the oracle by window", "recall.svg", _recall),
    ):
        if make(store, seed, folder / name):
            drawn[title] = folder / name
    return drawn


def _line(axes: Axes, x: Sequence[float], y: Sequence[Interval | None], name: str) -> Line2D:
    points = [(at, value.mean) for at, value in zip(x, y) if value is not None]
    (line,) = axes.plot([at for at, _ in points], [mean for _, mean in points], "o-", label=name, **SLIM)
    return line


def _band(axes: Axes, x: Sequence[float], y: Sequence[Interval | None], line: Line2D) -> None:
    points = [(at, value) for at, value in zip(x, y) if value is not None]
    low, high = [value.low for _, value in points], [value.high for _, value in points]
    axes.fill_between([at for at, _ in points], low, high, color=line.get_color(), alpha=0.12, linewidth=0)


def _save(path: Path) -> bool:
    # Without a date in the file, the same results give the same picture.
    pyplot.savefig(path, metadata={"Date": None})
    pyplot.close()
    return True


def _differences(store: Store, seed: int, path: Path) -> bool:
    """Paired differences with their intervals: levels differ far more between texts than between scorers."""
    results = Results(store, "divergence", seed)
    cases = [case for case in map(parse_label, results.cases) if not case.parts]
    hosts = sorted({case.host for case in cases if case.scorer})
    if not hosts:
        return False
    budgets = budgets_of(cases)
    size = (2.6 * len(hosts), 3.2)
    _, panes = pyplot.subplots(
        1, len(hosts), figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for axes, host in zip(panes[0], hosts):
        axes.axhline(0, color="black", linewidth=0.8, linestyle=":")
        for place, scorer in enumerate(SCORERS[1:]):
            labels = [(Case(f"{host}+{scorer}", b).label, Case(host, b).label) for b in budgets]
            found = [(n, results.difference(*pair, "kl")) for n, pair in enumerate(labels)]
            points = [(n + 0.18 * (place - 1.5), value) for n, value in found if value is not None]
            means = [value.mean for _, value in points]
            reach = [[v.mean - v.low for _, v in points], [v.high - v.mean for _, v in points]]
            axes.errorbar([at for at, _ in points], means, reach, fmt="o", label=scorer, **SLIM)
        axes.set(title=host, xlabel="share kept")
        axes.set_xticks(range(len(budgets)), [f"{budget:.0%}" for budget in budgets])
    panes[0][0].set_ylabel("KL less that of the host (nats)")
    panes[0][0].set_yscale("symlog", linthresh=0.02)  # one wide interval would flatten all others
    panes[0][-1].legend(fontsize=7)
    return _save(path)


def _retrieval(store: Store, seed: int, path: Path) -> bool:
    if not any(store.select(measure="retrieval")):
        return False
    _, panes = pyplot.subplots(2, 2, figsize=(10, 6), sharex=True, layout="constrained")
    for column, setting in enumerate(SETTINGS):
        results = Results(store, "retrieval", seed, setting=setting)
        cases = sorted((parse_label(label) for label in results.cases if label != FULL), key=table_order)
        budgets = budgets_of(cases)
        names = list(dict.fromkeys((c.policy, c.window, c.recent_share, c.pool) for c in cases))
        for row, field in enumerate(("log_prob", "match")):
            axes = panes[row][column]
            for policy, *parts in names:
                means = [results.mean(Case(policy, b, *parts).label, field) for b in budgets]
                name = " ".join(x for x in (policy, Case(policy, 1.0, *parts).parts) if x)
                _line(axes, budgets, means, name)
            full = results.mean(FULL, field)
            if full is not None:
                axes.axhline(full.mean, color="black", linewidth=0.8, linestyle=":", label=FULL)
        panes[0][column].set(title=f"question {'in the window' if setting == 'aware' else 'after the cut'}")
        panes[1][column].set(xlabel="share kept")
    panes[0][0].set_ylabel("log-probability of the reply")
    panes[1][0].set_ylabel("share of answers named")
    panes[0][1].legend(fontsize=6, loc="upper left", bbox_to_anchor=(1.02, 1))
    return _save(path)


def _recall(store: Store, seed: int, path: Path) -> bool:
    results = Results(store, "recall", seed)
    if not results.cases:
        return False
    windows = windows_of(results)
    _, axes = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    for scorer in RECALLED:
        means = [results.mean(f"{scorer} w={window}", "recall") for window in windows]
        _band(axes, windows, means, _line(axes, windows, means, scorer))
    axes.set_xscale("log", base=2)
    axes.set(xlabel="window (rows that vote)", ylabel="recall of the oracle's 40 rows")
    axes.legend(fontsize=7)
    return _save(path)
