"""Where kvtriage and kvpress differ on purpose: each difference is held, in both directions (README.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import comparisons
import kvtriage
import models
import numpy as np
import pytest
import ref_np
import torch
from captured_layer import CapturedLayer, capture
from comparison import (
    Comparison,
    kept_by_press,
    kept_by_reference,
    kept_by_service,
    kept_tokens,
    named,
)
from kept_rows import KeptRows, assert_same
from kvpress import (
    CriticalAdaKVPress,
    CriticalKVPress,
    LagKVPress,
    PyramidKVPress,
    RandomPress,
    SnapKVPress,
)
from kvpress.utils import compute_n_kept
from lent_layers import LentLayers, rows_first

WINDOW = 64  # of snapkv, pyramidkv, adakv and criticalkv


@pytest.fixture
def layer(random_layers: dict[str, list[CapturedLayer]]) -> CapturedLayer:
    return random_layers["gqa"][1]


def all_equal(lists: KeptRows, rows: Sequence[int] | np.ndarray) -> bool:
    return all(np.array_equal(kept, rows) for kept in lists)


def test_counts_are_the_same() -> None:
    """The one thing that never differs: kept_ratio = 1.0 - compression_ratio gives kvpress's count."""
    for rows in (1, 3, 7, 10, 100, 128, 300, 1000, 4096):
        for removed in (0.05, 0.25, 0.29, 0.5, 0.7, 0.8, 0.9, 0.99):
            assert ref_np.kept_count(rows, 1.0 - removed) == compute_n_kept(rows, removed)


def test_streaming_below_its_sinks_keeps_the_newest_row(
    session: kvtriage.Session, layer: CapturedLayer
) -> None:
    short = _first_rows(layer, 40)
    what = comparisons.SAME_KEPT_SET["streaming"]
    for count in (2, 3, 4):
        removed = 1.0 - (count + 0.5) / short.rows
        ours, theirs = kept_by_service(what, session, short, removed), kept_by_press(what, short, removed)
        assert all_equal(ours, [*range(count - 1), short.rows - 1])
        assert all(len(kept) == count and kept.max() < 4 for kept in theirs)


def test_snapkv_below_its_window_keeps_the_newest_rows(
    session: kvtriage.Session, layer: CapturedLayer
) -> None:
    """kvpress gives all rows of the window one score and leaves the choice to topk."""
    what, removed = comparisons.SAME_KEPT_SET["snapkv"], 0.9
    ours, theirs = kept_by_service(what, session, layer, removed), kept_by_press(what, layer, removed)
    kept = kept_tokens(layer, removed)
    assert kept < WINDOW
    assert all_equal(ours, np.arange(layer.rows - kept, layer.rows))
    assert all(len(rows) == kept and rows.min() >= layer.rows - WINDOW for rows in theirs)


def test_snapkv_of_a_short_prompt_uses_the_rows_there_are(
    session: kvtriage.Session, layer: CapturedLayer
) -> None:
    short, what = _first_rows(layer, WINDOW), comparisons.SAME_KEPT_SET["snapkv"]
    with pytest.raises(AssertionError, match="window"):
        kept_by_press(what, short, 0.5)
    assert all_equal(kept_by_service(what, session, short, 0.5), np.arange(32, 64))


@pytest.mark.parametrize("ratio", [0.9, 0.5])
def test_pyramidkv_keeps_its_total_and_never_falls_back(
    ratio: float, session: kvtriage.Session, random_layers: dict[str, list[CapturedLayer]]
) -> None:
    """kvpress counts the window inside the pyramid, and below beta * window is uniform."""
    layers = random_layers["gqa"]
    press = PyramidKVPress(compression_ratio=ratio, window_size=8)
    theirs = [press.get_layer_budget(layer.module, layer.rows) for layer in layers]
    budget = kept_tokens(layers[0], ratio)
    policy = named("pyramidkv", ratio, window=kvtriage.Window(last=8), protect=kvtriage.Protect(recent=8))
    queries = rows_first([layer.queries[:, -8:] for layer in layers])
    with LentLayers(session, layers, queries=queries) as lent:
        ours = [{len(rows) for rows in kept} for kept in lent.kept(policy, lent.query_window())]
    free = ref_np.pyramid_counts(len(layers), budget - 8, layers[0].rows - 8)
    assert ours == [{8 + slots} for slots in free]
    assert sum(max(kept) for kept in ours) == len(layers) * budget
    if ratio == 0.9:  # 39 kept rows are fewer than 20 * 8
        assert theirs == [round(layers[0].rows * (1 - ratio))] * len(layers)
    else:
        assert theirs != [max(kept) for kept in ours]


def test_adakv_guards_free_slots_on_top_of_the_window(
    session: kvtriage.Session, layer: CapturedLayer
) -> None:
    """kvpress takes alpha * kept of the best rows, window included: below 5 windows it guards nothing."""
    ratio, alpha = 0.5, 0.2
    guarded = comparisons.adakv(alpha)
    uneven = _uneven_heads(layer)
    ours, theirs = kept_by_service(guarded, session, uneven, ratio), kept_by_press(guarded, uneven, ratio)
    reference, score = kept_by_reference(guarded, uneven, ratio)
    assert_same(ours, reference, score, across_heads=True)
    budget = kept_tokens(uneven, ratio)
    assert int(budget * alpha) <= WINDOW
    assert min(map(len, ours)) >= WINDOW + int(alpha * (budget - WINDOW))
    assert_same(theirs, kept_by_press(comparisons.adakv(0.0), uneven, ratio), score, across_heads=True)
    assert min(map(len, theirs)) < min(map(len, ours))
    assert sum(map(len, ours)) == sum(map(len, theirs)) == len(ours) * budget


def test_lagkv_below_its_tail_keeps_sinks_and_the_newest_rows(
    session: kvtriage.Session, layer: CapturedLayer
) -> None:
    """kvpress gives sinks and tail one score and leaves the choice to topk."""
    what, removed = comparisons.lagkv(128), 0.75
    kept, tail = kept_tokens(layer, removed), ref_np.lag_tail(layer.rows, 4, 128)
    assert kept < tail
    ours, theirs = kept_by_service(what, session, layer, removed), kept_by_press(what, layer, removed)
    assert all_equal(ours, [*range(4), *range(layer.rows - kept + 4, layer.rows)])
    protected = {*range(4), *range(layer.rows - tail, layer.rows)}
    assert all(set(rows) <= protected for rows in theirs)


def test_lagkv_of_a_constant_channel_is_a_number(session: kvtriage.Session, layer: CapturedLayer) -> None:
    """kvpress divides 0 by 0 there, and ranks NaN."""
    keys = layer.keys.clone()
    keys[..., 0] = 1.0
    flat = replace(layer, keys=keys)
    what = comparisons.lagkv(32)
    press = LagKVPress(compression_ratio=0.5, lag_size=32)
    parts = keys[None, :, 4 : 4 + 64].view(1, len(keys), 2, 32, -1)
    assert torch.isnan(press._get_states_score(parts)).all()
    reference, score = kept_by_reference(what, flat, 0.5)
    assert_same(kept_by_service(what, session, flat, 0.5), reference, score)


def test_criticalkv_counts_free_slots_only(session: kvtriage.Session, layer: CapturedLayer) -> None:
    """Half of the free slots go by attention; kvpress's half counts the window too."""
    ratio = 0.5
    what = Comparison(
        lambda _, x: CriticalKVPress(SnapKVPress(compression_ratio=x)),
        lambda _, x: named("criticalkv", x),
        lambda *_: comparisons.CRITICAL,
        "queries",
    )
    ours, theirs = kept_by_service(what, session, layer, ratio), kept_by_press(what, layer, ratio)
    reference, score = kept_by_reference(what, layer, ratio)
    assert_same(ours, reference, score)
    assert any(not np.array_equal(a, b) for a, b in zip(ours, theirs))
    assert [len(rows) for rows in ours] == [len(rows) for rows in theirs]


def test_adaptive_criticalkv_shares_out_like_kvpress(session: kvtriage.Session, layer: CapturedLayer) -> None:
    """The stages differ as those of criticalkv do; how many rows each head gets does not."""
    uneven = _uneven_heads(layer)
    what = Comparison(
        lambda _, x: CriticalAdaKVPress(SnapKVPress(compression_ratio=x), alpha_safeguard=0.0),
        lambda _, x: named("criticalkv", x, kvtriage.Budget(kept_ratio=1.0 - x, adaptive_alpha=0.0)),
        lambda *_: dict(comparisons.CRITICAL, heads="adaptive", alpha=0.0),
        "queries",
        across_heads=True,
    )
    ours, theirs = kept_by_service(what, session, uneven, 0.5), kept_by_press(what, uneven, 0.5)
    assert [len(rows) for rows in ours] == [len(rows) for rows in theirs]
    assert len({len(rows) for rows in ours}) > 1


def test_random_is_another_stream_that_repeats(session: kvtriage.Session, layer: CapturedLayer) -> None:
    scorer = kvtriage.Scorer(kvtriage.ScorerKind.RANDOM, random_key=7)
    policy = kvtriage.Policy(
        parts=kvtriage.PolicyParts(
            scorer=scorer,
            protect=kvtriage.Protect(),
            budget=kvtriage.Budget(kept_ratio=0.5),
            granularity=kvtriage.Granularity.PER_HEAD,
        )
    )
    what = Comparison(
        lambda _, x: RandomPress(compression_ratio=x, seed=7),
        lambda *_: policy,
        lambda *_: dict(ref_np.BASE, scorer="random"),
    )
    ours, theirs = kept_by_service(what, session, layer, 0.5), kept_by_press(what, layer, 0.5)
    score = ref_np.random_score(len(layer.keys), layer.rows, 7, layer.module.layer_idx)
    wanted = [ref_np.take(head, np.arange(layer.rows), kept_tokens(layer, 0.5)) for head in score]
    assert all(np.array_equal(a, b) for a, b in zip(ours, wanted, strict=True))
    assert [len(rows) for rows in ours] == [len(rows) for rows in theirs]
    assert any(not np.array_equal(a, b) for a, b in zip(ours, theirs))


def test_h2o_sums_and_keeps_a_recent_half(session: kvtriage.Session, layer: CapturedLayer) -> None:
    """Observed attention divides by the rows that see a column, and protects nothing."""
    ratio = 0.7
    what = Comparison(
        comparisons.observed_attention().press,
        lambda _, x: named("h2o", x),
        lambda *_: ref_np.POLICIES["h2o"],
        "queries",
        with_attentions=True,
    )
    ours, theirs = kept_by_service(what, session, layer, ratio), kept_by_press(what, layer, ratio)
    reference, score = kept_by_reference(what, layer, ratio)
    assert_same(ours, reference, score)
    newest = range(layer.rows - kept_tokens(layer, ratio) // 2, layer.rows)
    assert all(set(newest) <= set(rows) for rows in ours)
    assert not any(set(newest) <= set(rows) for rows in theirs)


def test_scores_of_a_bf16_cache_are_float32(session: kvtriage.Session) -> None:
    """kvpress rounds attention and its means to bf16 (a step is 2^-8), which turns the order of near rows."""
    model = models.random_llama(*models.SHAPES["gqa"]).bfloat16()
    (low,) = capture(model, models.random_ids(models.ROWS), [1])
    snapkv, turned = comparisons.SAME_KEPT_SET["snapkv"], 0
    reference, score = kept_by_reference(snapkv, low, 0.5)
    assert_same(kept_by_service(snapkv, session, low, 0.5), reference, score)
    for head, kept in enumerate(kept_by_press(snapkv, low, 0.5)):
        rows = np.setxor1d(kept, reference[head])
        turned += len(rows)
        assert not len(rows) or np.ptp(score[head, rows]) <= 2.0**-5 * score[head, rows].max()
    assert turned
    knorm = comparisons.SAME_KEPT_SET["knorm"]  # the one press that scores in float32
    _, score = kept_by_reference(knorm, low, 0.5)
    assert_same(kept_by_service(knorm, session, low, 0.5), kept_by_press(knorm, low, 0.5), score)


def _first_rows(layer: CapturedLayer, count: int) -> CapturedLayer:
    """The layer as it was after its first `count` tokens."""
    cos, sin = layer.kwargs["position_embeddings"]
    return replace(
        layer,
        hidden=layer.hidden[:, :count],
        keys=layer.keys[:, :count],
        values=layer.values[:, :count],
        queries=layer.queries[:, :count],
        queries_before_rope=layer.queries_before_rope[:, :count],
        attentions=layer.attentions[:, :count, :count],
        kwargs={**layer.kwargs, "position_embeddings": (cos[:, :count], sin[:, :count])},
    )


def _uneven_heads(layer: CapturedLayer) -> CapturedLayer:
    """The first KV head attends evenly (its keys are small): its best rows lose against other heads'."""
    keys = layer.keys.clone()
    keys[0] *= 0.01
    return replace(layer, keys=keys)
