"""The section about CacheBlend."""

from __future__ import annotations

from kvtriage.eval.measures.blend import FULL, LEAKING, REUSE
from kvtriage.eval.report.section import Comparison, Section, verdict
from kvtriage.eval.results import Results
from kvtriage.eval.store import Store
from kvtriage.eval.table import markdown, plain, signed

FIELDS = {
    "text": ("kl", "output_error", "seconds"),
    "question": ("log_prob", "match", "kl", "output_error", "seconds"),
}
WORDS = {
    "kl": "KL to the full prefill",
    "output_error": "output error",
    "seconds": "seconds to the first token",
    "log_prob": "log-probability of the reply",
    "match": "answers named",
}
NEARNESS = ("kl", "output_error")  # smaller is nearer to the full prefill


def sections(store: Store, seed: int) -> list[Section]:
    of_kinds = {kind: Results(store, "blend", seed, kind=kind) for kind in FIELDS}
    return [_kind(kind, results) for kind, results in of_kinds.items() if results.cases]


def _kind(kind: str, results: Results) -> Section:
    fields, cases = FIELDS[kind], results.cases
    compared = [field for field in fields if field not in ("match", "seconds")]
    right = [case for case in cases if case not in (FULL, REUSE) and not case.endswith(LEAKING)]
    pairs = [(case, REUSE) for case in cases if case not in (FULL, REUSE)]
    pairs += [(case, case + LEAKING) for case in right]
    rows = [[case, *(plain(results.mean(case, field)) for field in fields)] for case in cases]
    differences = [
        [f"{ours} - {theirs}", *(signed(results.difference(ours, theirs, field)) for field in compared)]
        for ours, theirs in pairs
    ]
    body = (
        markdown(["", *(WORDS[field] for field in fields)], rows)
        + "\n\nPaired differences.\n\n"
        + markdown(["", *(WORDS[field] for field in compared)], differences)
    )
    findings = [
        verdict(
            f"Blending, {kind}s: {ours} is nearer to the full prefill than {theirs}",
            [Comparison(WORDS[field], results.difference(ours, theirs, field)) for field in NEARNESS],
        )
        for ours, theirs in pairs
    ]
    return Section(f"CacheBlend, {kind}s ({results.samples})", body, tuple(findings))
