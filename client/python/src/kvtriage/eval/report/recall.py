"""The section about recall of the paper's oracle."""

from __future__ import annotations

from kvtriage.eval.measures.recall import SCORERS, TOP
from kvtriage.eval.report.section import Comparison, Section, verdict
from kvtriage.eval.results import Results
from kvtriage.eval.table import markdown, plain, signed


def windows_of(results: Results) -> list[int]:
    return sorted({int(label.rpartition("=")[2]) for label in results.cases})


def sections(results: Results) -> list[Section]:
    windows = windows_of(results)
    rows = [
        [scorer, *(plain(results.mean(f"{scorer} w={window}", "recall")) for window in windows)]
        for scorer in SCORERS
    ]
    differences, findings = [], []
    for scorer in SCORERS:
        if scorer == "attention":
            continue
        against = [
            Comparison(
                f"window {window}",
                results.difference(f"attention w={window}", f"{scorer} w={window}", "recall"),
            )
            for window in windows
        ]
        findings.append(verdict(f"The recall of `{scorer}` is higher than attention's", against))
        turned = [
            results.difference(f"{scorer} w={window}", f"attention w={window}", "recall")
            for window in windows
        ]
        differences.append([f"{scorer} - attention", *map(signed, turned)])
    header = ["scorer", *(f"window {window}" for window in windows)]
    body = (
        f"Share of the {TOP} rows with the largest true effect on the first decoded token's attention output "
        f"that are among the scorer's {TOP} best, mean over layers and KV heads.\n\n"
        + markdown(header, rows)
        + "\n\nPaired difference; above zero the scorer finds more.\n\n"
        + markdown(header, differences)
    )
    return [Section(f"Recall of the oracle ({results.samples} texts)", body, tuple(findings))]
