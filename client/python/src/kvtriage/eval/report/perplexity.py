"""The section about perplexity with a cache of fixed size."""

from __future__ import annotations

import math

from kvtriage.eval.cases import SCORERS, Case, table_order
from kvtriage.eval.measures.perplexity import FULL
from kvtriage.eval.report.section import Comparison, Section, verdict
from kvtriage.eval.results import Results
from kvtriage.eval.statistics import Interval
from kvtriage.eval.table import markdown, plain, signed


def sections(results: Results) -> list[Section]:
    labels = [label for label in results.cases if label != FULL]
    budgets = list(dict.fromkeys(label.partition(" ")[2] for label in labels))
    policies = sorted(
        {label.partition(" ")[0] for label in labels}, key=lambda policy: table_order(Case(policy, 1.0))
    )
    rows = [[FULL, *[plain(_exp(results.mean(FULL, "loss")), 2), "-"] * len(budgets)]]
    for policy in policies:
        cells = []
        for budget in budgets:
            label = f"{policy} {budget}"
            cells.append(plain(_exp(results.mean(label, "loss")), 2))
            against = results.difference(label, f"h2o {budget}", "loss") if policy != "h2o" else None
            cells.append(signed(against))
        rows.append([policy, *cells])
    header = ["policy"]
    for budget in budgets:
        header += [f"perplexity, {budget}", "log difference to h2o"]
    body = (
        "Every token is predicted once, by a cache that the service has evicted down to the budget after "
        "every chunk. Paired over texts: differences of the mean log-probability loss, below zero is "
        "better.\n\n" + markdown(header, rows)
    )
    findings = [
        verdict(
            claim,
            [
                Comparison(b, results.difference(f"{ours} {b}", f"{theirs} {b}", "loss")) for b in budgets
            ],
        )
        for ours, theirs, claim in _claims(policies)
    ]
    return [Section(f"Perplexity at a fixed budget ({results.samples} texts)", body, tuple(findings))]


def _claims(policies: list[str]) -> list[tuple[str, str, str]]:
    claims = [("h2o", "streaming", "Reading with a fixed budget, `h2o` has a lower perplexity than `streaming`")]
    for scorer in SCORERS[1:]:
        if f"h2o+{scorer}" in policies:
            claims.append(
                (f"h2o+{scorer}", "h2o", f"Reading with a fixed budget, `h2o+{scorer}` is better than `h2o`")
            )
    return claims


def _exp(loss: Interval | None) -> Interval | None:
    if loss is None:
        return None
    return Interval(math.exp(loss.mean), math.exp(loss.low), math.exp(loss.high), loss.count)
