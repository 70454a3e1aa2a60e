"""The section about CacheBlend."""

from __future__ import annotations

from kvtriage.eval.measures.blend import FULL, REUSE
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
    return [_kind(store, seed, kind) for kind in FIELDS]


def _kind(store: Store, seed: int, kind: str) -> Section:
    results = Results(store, "blend", seed, kind=kind)
    fields = FIELDS[kind]
    cases = results.cases
    rows = [[case, *(plain(results.mean(case, field)) for field in fields)] for case in cases]
    hkvd = [case for case in cases if case not in (FULL, REUSE)]
    compared = [field for field in fields if field not in ("match", "seconds")]
    against = [
        [f"{case} - {REUSE}", *(signed(results.difference(case, REUSE, field)) for field in compared)]
        for case in hkvd
    ]
    body = (
        markdown(["", *(WORDS[field] for field in fields)], rows)
        + "\n\nPaired difference from plain reuse.\n\n"
        + markdown(["", *(WORDS[field] for field in compared)], against)
    )
    findings = [
        verdict(
            f"Blending, {kind}s: {case} is nearer to the full prefill than plain reuse (KL, output error)",
            [Comparison(WORDS[field], results.difference(case, REUSE, field)) for field in NEARNESS],
        )
        for case in hkvd
    ]
    return Section(f"CacheBlend, {kind}s ({results.samples})", body, tuple(findings))
