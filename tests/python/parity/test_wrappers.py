"""Presses that wrap another one: what a caller of kvtriage does instead keeps the same rows."""

from __future__ import annotations

from dataclasses import replace

import kvtriage
import models
import numpy as np
import pytest
import ref_np
import torch
from captured_layer import CapturedLayer, capture
from comparison import named, rope_of
from kept_rows import assert_same, rows_of_copies
from kvpress import (
    BasePress,
    BlockPress,
    ChunkPress,
    ComposedPress,
    DecodingPress,
    KeyDiffPress,
    KeyRerotationPress,
    KnormPress,
    PerLayerCompressionPress,
)
from lent_layers import LentLayers
from models import ROWS
from transformers import DynamicCache


@pytest.fixture
def layer(random_layers: dict[str, list[CapturedLayer]]) -> CapturedLayer:
    return random_layers["gqa"][1]


def press_result(press: BasePress, layer: CapturedLayer) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        keys, values = press.compress(*layer.press_arguments())
    return keys[0], values[0]


def score_of(name: str, layer: CapturedLayer) -> np.ndarray:
    keys = layer.keys.double().numpy()
    return ref_np.key_norm(keys) if name == "knorm" else ref_np.key_diff(keys)


def keep(session: kvtriage.Session, layer: CapturedLayer, name: str, count: int) -> list[np.ndarray]:
    with LentLayers(session, [layer]) as lent:
        return lent.kept(kvtriage.named_policy_tokens(name, count))[0]


def rows_of(layer: CapturedLayer, rows: list[np.ndarray]) -> CapturedLayer:
    """The layer with only these rows of K and V, one array per head."""

    def taken(tensor: torch.Tensor) -> torch.Tensor:
        return torch.stack([tensor[head, torch.tensor(kept)] for head, kept in enumerate(rows)])

    return replace(layer, keys=taken(layer.keys), values=taken(layer.values))


def test_renumber_turns_keys_as_key_rerotation_does(session: kvtriage.Session, layer: CapturedLayer) -> None:
    theirs = press_result(KeyRerotationPress(KnormPress(compression_ratio=0.5)), layer)
    with LentLayers(session, [layer], rope=rope_of(layer)) as lent:
        result = lent.compress(named("knorm", 0.5), act=kvtriage.InPlace(), renumber=kvtriage.AngleMode.EXACT)
        heads, _, size = layer.keys.shape
        both = lent.memory.array((2, heads, layer.rows, size), np.float32)[:, :, : result.kept].copy()
    assert result.next_position == result.kept == ROWS // 2
    assert np.array_equal(both[1], theirs[1].numpy())
    # kvpress multiplies position and speed in float32: at this length an angle is off by up to 2e-5.
    largest = np.linalg.norm(theirs[0].numpy(), axis=-1, keepdims=True)
    assert (np.abs(both[0] - theirs[0].numpy()) <= 1e-4 * largest).all()


def test_explicit_layers_keep_what_per_layer_compression_keeps(session: kvtriage.Session) -> None:
    model, ids, removed = models.random_llama(*models.SHAPES["gqa"]), models.random_ids(ROWS), [0.3, 0.8]
    layers = capture(model, ids, [0, 1])
    cache = DynamicCache()
    with torch.no_grad(), PerLayerCompressionPress(KnormPress(), removed)(model):
        model(ids[None], past_key_values=cache, use_cache=True)
    counts = [ref_np.kept_count(ROWS, 1.0 - ratio) for ratio in removed]
    with LentLayers(session, layers) as lent:
        ours = lent.kept(named("knorm", 0.0, kvtriage.Budget(explicit_layers=counts)))
    for layer, kept, cached in zip(layers, ours, cache.layers, strict=True):
        assert_same(kept, rows_of_copies(layer.keys, cached.keys[0]), score_of("knorm", layer))


@pytest.mark.parametrize(("press", "name"), [(KnormPress, "knorm"), (KeyDiffPress, "keydiff")])
def test_one_sequence_per_chunk_keeps_what_chunk_press_keeps(
    press: type, name: str, session: kvtriage.Session, layer: CapturedLayer
) -> None:
    chunk = 80
    theirs = rows_of_copies(
        layer.keys, press_result(ChunkPress(press(compression_ratio=0.5), chunk_length=chunk), layer)[0]
    )
    for begin in range(0, ROWS, chunk):
        part = replace(
            layer, keys=layer.keys[:, begin : begin + chunk], values=layer.values[:, begin : begin + chunk]
        )
        kept = [begin + rows for rows in keep(session, part, name, chunk // 2)]
        wanted = [rows[(rows >= begin) & (rows < begin + chunk)] for rows in theirs]
        score = np.zeros((len(layer.keys), ROWS))
        score[:, begin : begin + chunk] = score_of(name, part)
        assert_same(kept, wanted, score)


def test_one_call_per_block_keeps_what_block_press_keeps(
    session: kvtriage.Session, layer: CapturedLayer
) -> None:
    """The cache is filled block by block, and cut back to the budget after each."""
    block, count = 64, ROWS // 2
    theirs = rows_of_copies(
        layer.keys, press_result(BlockPress(KeyDiffPress(compression_ratio=0.5), block_size=block), layer)[0]
    )
    rows = [np.arange(count)] * len(layer.keys)
    for begin in range(count, ROWS, block):
        rows = [np.concatenate([kept, np.arange(begin, min(begin + block, ROWS))]) for kept in rows]
        now = rows_of(layer, rows)
        rows = [kept[chosen] for kept, chosen in zip(rows, keep(session, now, "keydiff", count), strict=True)]
    assert_same(rows, theirs, score_of("keydiff", layer))


def test_two_calls_keep_what_composed_press_keeps(session: kvtriage.Session) -> None:
    model, ids = models.random_llama(*models.SHAPES["gqa"]), models.random_ids(ROWS)
    (layer,) = capture(model, ids, [1])
    cache = DynamicCache()
    presses = [KnormPress(compression_ratio=0.5), KeyDiffPress(compression_ratio=0.5)]
    with torch.no_grad(), ComposedPress(presses)(model):
        model(ids[None], past_key_values=cache, use_cache=True)
    first = keep(session, layer, "knorm", ROWS // 2)
    second = keep(session, rows_of(layer, first), "keydiff", ROWS // 4)
    ours = [kept[chosen] for kept, chosen in zip(first, second, strict=True)]
    assert_same(ours, rows_of_copies(layer.keys, cache.layers[1].keys[0]), score_of("keydiff", layer))


def test_kept_tokens_while_decoding_keeps_what_decoding_press_keeps(
    session: kvtriage.Session, layer: CapturedLayer
) -> None:
    target, steps = 100, 8
    seen: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    class Watched(KnormPress):
        def score(self, module, hidden_states, keys, values, attentions, kwargs):  # type: ignore[no-untyped-def]
            seen[module.layer_idx] = (keys[0], values[0])
            return super().score(module, hidden_states, keys, values, attentions, kwargs)

    model, ids = models.random_llama(*models.SHAPES["gqa"]), models.random_ids(ROWS)
    cache = DynamicCache()
    press = DecodingPress(Watched(), compression_interval=steps, target_size=target)
    with torch.no_grad(), press(model):
        model(ids[None, : ROWS - steps], past_key_values=cache, use_cache=True)
        for token in ids[ROWS - steps :]:
            model(token[None, None], past_key_values=cache, use_cache=True)
    for number, cached in enumerate(cache.layers):
        before = replace(layer, keys=seen[number][0], values=seen[number][1])
        assert before.rows == ROWS
        assert_same(
            keep(session, before, "knorm", target),
            rows_of_copies(before.keys, cached.keys[0]),
            score_of("knorm", before),
        )
