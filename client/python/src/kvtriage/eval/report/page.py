"""The whole page: what was run, what was found, the sections, the plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kvtriage.eval.report import blend, divergence, perplexity, recall, retrieval
from kvtriage.eval.report.section import Section
from kvtriage.eval.results import Results
from kvtriage.eval.store import Store

HOW_TO_READ = """\
Numbers are means over samples with 95 % intervals (paired bootstrap over samples, percentiles of
10,000 resamples). Differences are taken sample by sample, and nothing is said of fewer than five. Many comparisons stand on this page and none is
corrected for that: of comparisons between policies that do not differ, about one in twenty still comes out
bold. A statement is made from the intervals alone: *holds in direction* where more comparisons speak for it
than cannot be told apart and none speaks against it, *only in part* where fewer do, *depends* where some
speak for it and some against. One small model and these texts: it says what happens here, not
everywhere."""

BY_MEASURE: Mapping[str, Callable[[Results], list[Section]]] = {
    "divergence": divergence.sections,
    "perplexity": perplexity.sections,
    "recall": recall.sections,
}
# Measures whose records are told apart by their tags.
BY_TAG: Mapping[str, Callable[[Store, int], list[Section]]] = {
    "retrieval": retrieval.sections,
    "blend": blend.sections,
}


def sections(store: Store, seed: int) -> list[Section]:
    """Of every measure that the store has records of."""
    every: list[Section] = []
    for name, make in BY_MEASURE.items():
        results = Results(store, name, seed)
        if results.cases:
            every += make(results)
    for name, make_tagged in BY_TAG.items():
        if any(store.select(measure=name)):
            every += make_tagged(store, seed)
    return every


def page(store: Store, seed: int, about: Mapping[str, str], plots: Mapping[str, Path]) -> str:
    """Markdown. `about`: what was run, one line each; `plots`: title -> path relative to the page."""
    every = sections(store, seed)
    findings = [f"* {line}" for section in every for line in section.findings]
    parts = [
        "# What the evictions cost, measured",
        "Written by `kvtriage-eval report`; do not edit. " + HOW_TO_READ.replace("\n", " "),
        "\n".join(f"* {name}: {value}" for name, value in about.items()),
        "## What holds",
        "\n".join(findings),
        *(f"![{title}]({path.as_posix()})" for title, path in plots.items()),
    ]
    for section in every:
        parts += [f"## {section.title}", section.body]
    return "\n\n".join(parts) + "\n"
