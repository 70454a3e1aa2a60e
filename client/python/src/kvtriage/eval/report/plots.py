"""Pictures of a store's results, as SVG with text left as text (small, and searchable)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from kvtriage.eval.cases import Case, parse_label
from kvtriage.eval.measures.recall import SCORERS
from kvtriage.eval.measures.retrieval import FULL, SETTINGS
from kvtriage.eval.report.divergence import budgets_of
from kvtriage.eval.report.recall import windows_of
from kvtriage.eval.results import Results
from kvtriage.eval.statistics import Interval
from kvtriage.eval.store import Store

matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kvtriage", "font.size": 9})


def draw(store: Store, seed: int, folder: Path) -> dict[str, Path]:
    """Draws what the store has; returns title -> file."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for title, name, make in (
        ("KL divergence by budget", "divergence.svg", _divergence),
        ("Retrieval by budget", "retrieval.svg", _retrieval),
        ("Recall of the oracle by window", "recall.svg", _recall),
    ):
        if make(store, seed, folder / name):
            drawn[title] = folder / name
    return drawn


def _line(axes: Axes, x: Sequence[float], y: Sequence[Interval | None], name: str, style: str) -> None:
    points = [(at, value) for at, value in zip(x, y) if value is not None]
    at = [point for point, _ in points]
    (line,) = axes.plot(at, [value.mean for _, value in points], style, label=name, linewidth=1.2)
    low, high = [value.low for _, value in points], [value.high for _, value in points]
    axes.fill_between(at, low, high, color=line.get_color(), alpha=0.12, linewidth=0)


def _save(path: Path) -> bool:
    pyplot.tight_layout()
    # Without a date in the file, the same results give the same picture.
    pyplot.savefig(path, metadata={"Date": None})
    pyplot.close()
    return True


def _divergence(store: Store, seed: int, path: Path) -> bool:
    results = Results(store, "divergence", seed)
    cases = [case for case in map(parse_label, results.cases) if not case.parts]
    hosts = list(dict.fromkeys(case.host for case in cases if case.scorer))
    if not hosts:
        return False
    budgets = budgets_of(cases)
    _, panes = pyplot.subplots(1, len(hosts), figsize=(3 * len(hosts), 3), sharey=True, squeeze=False)
    for axes, host in zip(panes[0], hosts):
        for policy in dict.fromkeys(case.policy for case in cases if case.host == host):
            means = [results.mean(Case(policy, budget).label, "kl") for budget in budgets]
            _line(axes, budgets, means, policy.partition("+")[2] or "attention", "o-")
        axes.set(title=host, xlabel="share kept", yscale="log")
    panes[0][0].set_ylabel("KL to the full cache (nats)")
    panes[0][-1].legend(fontsize=7)
    return _save(path)


def _retrieval(store: Store, seed: int, path: Path) -> bool:
    if not any(store.select(measure="retrieval")):
        return False
    _, panes = pyplot.subplots(2, 2, figsize=(8, 6), sharex=True)
    for column, setting in enumerate(SETTINGS):
        results = Results(store, "retrieval", seed, setting=setting)
        cases = [parse_label(label) for label in results.cases if label != FULL]
        budgets = budgets_of(cases)
        names = list(dict.fromkeys((c.policy, c.window, c.recent_share, c.pool) for c in cases))
        for row, field in enumerate(("log_prob", "match")):
            axes = panes[row][column]
            for policy, *parts in names:
                means = [results.mean(Case(policy, b, *parts).label, field) for b in budgets]
                name = " ".join(x for x in (policy, Case(policy, 1.0, *parts).parts) if x)
                _line(axes, budgets, means, name, "o-")
            full = results.mean(FULL, field)
            if full is not None:
                axes.axhline(full.mean, color="black", linewidth=0.8, linestyle=":", label=FULL)
        panes[0][column].set(title=f"question {'in the window' if setting == 'aware' else 'after the cut'}")
        panes[1][column].set(xlabel="share kept")
    panes[0][0].set_ylabel("log-probability of the reply")
    panes[1][0].set_ylabel("share of answers named")
    panes[1][1].legend(fontsize=6)
    return _save(path)


def _recall(store: Store, seed: int, path: Path) -> bool:
    results = Results(store, "recall", seed)
    if not results.cases:
        return False
    windows = windows_of(results)
    _, axes = pyplot.subplots(figsize=(5, 3.2))
    for scorer in SCORERS:
        means = [results.mean(f"{scorer} w={window}", "recall") for window in windows]
        _line(axes, windows, means, scorer, "o-")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="window (rows that vote)", ylabel="recall of the oracle's 40 rows")
    axes.legend(fontsize=7)
    return _save(path)
