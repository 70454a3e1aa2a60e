"""The comparisons in which kvtriage and kvpress must keep the same rows."""

from __future__ import annotations

import ref_np
import torch
from captured_layer import CapturedLayer
from comparison import Comparison, by_sums, kept_tokens, named, query_statistics
from kvpress import (
    AdaKVPress,
    CriticalAdaKVPress,
    CriticalKVPress,
    ExpectedAttentionPress,
    ExpectedAttentionStatsPress,
    FinchPress,
    KeyDiffPress,
    KnormPress,
    LagKVPress,
    ObservedAttentionPress,
    PyramidKVPress,
    SnapKVPress,
    StreamingLLMPress,
    TOVAPress,
)
from kvtriage import Budget, Policy, Pool, PoolKind, Protect, Scorer, ScorerKind, Window

SNAPKV = ref_np.POLICIES["snapkv"]
ADAKV = ref_np.POLICIES["adakv"]
CRITICAL = ref_np.POLICIES["criticalkv"]
EXPECTED = ref_np.POLICIES["expected-attention"]
LAGKV = ref_np.POLICIES["lagkv"]
QUESTION = 24  # tokens of the question that FINCH reads
SNAPKV_WINDOW = 64


def plain(press: type, name: str, source: str = "none") -> Comparison:
    """A press and a policy whose defaults agree."""
    return Comparison(
        lambda _, x: press(compression_ratio=x),
        lambda _, x: named(name, x),
        lambda *_: ref_np.POLICIES[name],
        source,
    )


def snapkv_16_7() -> Comparison:
    return Comparison(
        lambda _, x: SnapKVPress(compression_ratio=x, window_size=16, kernel_size=7),
        lambda _, x: named(
            "snapkv", x, window=Window(last=16), pool=Pool(PoolKind.AVG, 7), protect=Protect(recent=16)
        ),
        lambda *_: dict(SNAPKV, rows=16, kernel=7, recent=16),
        "queries",
    )


def lagkv(lag: int) -> Comparison:
    return Comparison(
        lambda _, x: LagKVPress(compression_ratio=x, lag_size=lag),
        lambda _, x: named("lagkv", x, scorer=Scorer(ScorerKind.LAG_KV, lag=lag)),
        lambda *_: dict(LAGKV, lag=lag),
    )


def expected_attention_near() -> Comparison:
    """Another future, and an epsilon."""
    return Comparison(
        lambda _, x: ExpectedAttentionPress(compression_ratio=x, n_future_positions=64, epsilon=0.02),
        lambda _, x: named(
            "expected-attention", x, scorer=Scorer(ScorerKind.EXPECTED_ATTENTION, future=64, epsilon=0.02)
        ),
        lambda *_: dict(EXPECTED, future=64, eps=0.02),
        "queries before rope",
    )


def expected_attention_of_statistics() -> Comparison:
    def press(layer: CapturedLayer, ratio: float) -> ExpectedAttentionStatsPress:
        press = ExpectedAttentionStatsPress(compression_ratio=ratio)
        mean, covariance = query_statistics(layer)
        press.mu, press.cov = {layer.module.layer_idx: mean}, {layer.module.layer_idx: covariance}
        return press

    return Comparison(press, lambda _, x: named("expected-attention", x), lambda *_: EXPECTED, "statistics")


def adakv(alpha: float) -> Comparison:
    return Comparison(
        lambda _, x: AdaKVPress(SnapKVPress(compression_ratio=x), alpha_safeguard=alpha),
        lambda _, x: named("adakv", x, Budget(kept_ratio=1.0 - x, adaptive_alpha=alpha)),
        lambda *_: dict(ADAKV, alpha=alpha),
        "queries",
        across_heads=True,
    )


def adaptive_knorm() -> Comparison:
    """Head counts by another score than attention."""
    return Comparison(
        lambda _, x: AdaKVPress(KnormPress(compression_ratio=x), alpha_safeguard=0.0),
        lambda _, x: named("knorm", x, Budget(kept_ratio=1.0 - x, adaptive_alpha=0.0)),
        lambda *_: dict(ref_np.POLICIES["knorm"], heads="adaptive", alpha=0.0),
        across_heads=True,
    )


def pyramid_count(layer: CapturedLayer, ratio: float) -> int:
    return PyramidKVPress(compression_ratio=ratio).get_layer_budget(layer.module, layer.rows)


def pyramidkv_of_counts() -> Comparison:
    """kvpress's own count of the layer, given as an explicit one: the ranking is the same."""
    return Comparison(
        lambda _, x: PyramidKVPress(compression_ratio=x),
        lambda layer, x: named("pyramidkv", x, Budget(explicit_layers=[pyramid_count(layer, x)])),
        lambda layer, x: dict(SNAPKV, layer_budget=pyramid_count(layer, x)),
        "queries",
    )


def critical_first_stage(layer: CapturedLayer, ratio: float) -> float:
    """The share of the free slots that makes our first stage kvpress's, whose size counts the window."""
    free = kept_tokens(layer, ratio) - SNAPKV_WINDOW
    stage1 = max(0, int((1 - ratio) * layer.rows * 0.5) - SNAPKV_WINDOW)
    return min(1.0, (stage1 + 0.5) / free) if stage1 else 0.0


def criticalkv_of_stage_sizes() -> Comparison:
    def scorer(layer: CapturedLayer, ratio: float) -> Scorer:
        return Scorer(ScorerKind.CRITICAL, first_stage=critical_first_stage(layer, ratio), epsilon=1e-4)

    return Comparison(
        lambda _, x: CriticalKVPress(SnapKVPress(compression_ratio=x)),
        lambda layer, x: named("criticalkv", x, scorer=scorer(layer, x)),
        lambda layer, x: dict(CRITICAL, first_stage=critical_first_stage(layer, x)),
        "queries",
    )


def critical_adakv(first_stage: float) -> Comparison:
    """At the two ends the size of the first stage does not matter."""

    def policy(_: CapturedLayer, ratio: float) -> Policy:
        return named(
            "criticalkv",
            ratio,
            Budget(kept_ratio=1.0 - ratio, adaptive_alpha=0.0),
            scorer=Scorer(ScorerKind.CRITICAL, first_stage=first_stage, epsilon=1e-4),
        )

    return Comparison(
        lambda _, x: CriticalAdaKVPress(
            SnapKVPress(compression_ratio=x), alpha_safeguard=0.0, first_stage_ratio=first_stage
        ),
        policy,
        lambda *_: dict(CRITICAL, first_stage=first_stage, heads="adaptive", alpha=0.0),
        "queries",
        across_heads=True,
    )


def observed_attention() -> Comparison:
    """A column's sum over all rows, divided by the number of rows that see it."""

    def sums(layer: CapturedLayer) -> torch.Tensor:
        return layer.attentions.sum(1) / torch.arange(layer.rows, 0, -1)

    return Comparison(
        lambda _, x: ObservedAttentionPress(compression_ratio=x),
        lambda _, x: by_sums(x),
        lambda *_: dict(ref_np.BASE, recent=0),
        "sums",
        sums,
        with_attentions=True,
    )


def finch(normalised: bool) -> Comparison:
    """Not normalised it is a policy of parts; normalised, each row of attention weighs as many times as it
    has keys, which ready column sums can say."""

    def press(_: CapturedLayer, ratio: float) -> FinchPress:
        press = FinchPress(compression_ratio=ratio, normalize_scores=normalised, rerotate_keys=False)
        press.window_size = QUESTION
        return press

    def sums(layer: CapturedLayer) -> torch.Tensor:
        keys_of_row = torch.arange(layer.rows - QUESTION, layer.rows)[:, None]
        return (layer.attentions[:, -QUESTION:] * keys_of_row).sum(1)

    if normalised:
        return Comparison(
            press, lambda _, x: by_sums(x, QUESTION), lambda *_: dict(SNAPKV, recent=QUESTION), "sums", sums
        )
    return Comparison(
        press,
        lambda _, x: named(
            "snapkv",
            x,
            window=Window(last=QUESTION),
            pool=Pool(PoolKind.NONE),
            protect=Protect(recent=QUESTION),
        ),
        lambda *_: dict(SNAPKV, rows=QUESTION, pool=None, kernel=1, recent=QUESTION),
        "queries",
    )


SAME_KEPT_SET = {
    "snapkv": plain(SnapKVPress, "snapkv", "queries"),
    "snapkv, window 16, pool 7": snapkv_16_7(),
    "streaming": plain(StreamingLLMPress, "streaming"),
    "tova": plain(TOVAPress, "tova", "queries"),
    "knorm": plain(KnormPress, "knorm"),
    "keydiff": plain(KeyDiffPress, "keydiff"),
    "lagkv, lag 32": lagkv(32),
    "lagkv, no whole lag": lagkv(512),
    "expected-attention": plain(ExpectedAttentionPress, "expected-attention", "queries before rope"),
    "expected-attention, 64 positions, epsilon": expected_attention_near(),
    "expected-attention of statistics": expected_attention_of_statistics(),
    "adakv, alpha 0": adakv(0.0),
    "adakv, alpha 1": adakv(1.0),
    "adaptive knorm": adaptive_knorm(),
    "pyramidkv of counts": pyramidkv_of_counts(),
    "criticalkv of stage sizes": criticalkv_of_stage_sizes(),
    "criticalkv, adaptive, no first stage": critical_adakv(0.0),
    "criticalkv, adaptive, first stage only": critical_adakv(1.0),
    "observed attention": observed_attention(),
    "finch": finch(normalised=False),
    "finch, normalised": finch(normalised=True),
}
