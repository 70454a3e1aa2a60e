"""CacheBlend on small models: glued chunks, chosen rows recomputed with right positions and a right mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kvtriage
import pytest
import torch
from kvtriage import Outcome, Session
from kvtriage.transformers import (
    Blender,
    Chunk,
    SidecarCache,
    UnsupportedModel,
    generate,
    glue,
    prefill_chunk,
)
from tiny_models import FAMILIES, LAYERS, tiny_model, tokens

Start = Callable[..., kvtriage.PrivateService]
LENGTHS = (20, 15, 25)  # of the chunks


def chunks_of(model: Any) -> tuple[list[Chunk], torch.Tensor, torch.Tensor]:
    """Chunks, the text behind them, and all of it."""
    text = tokens(sum(LENGTHS) + 8)[0]
    *parts, suffix = torch.split(text, [*LENGTHS, 8])
    return [prefill_chunk(model, part) for part in parts], suffix, text


def full_prefill(model: Any, text: torch.Tensor) -> tuple[torch.Tensor, Any]:
    with torch.no_grad():
        output = model(input_ids=text[None], use_cache=True)
    return output.logits[0, -1], output.past_key_values


def assert_close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(
        actual.float(), expected.float(), rtol=tolerance, atol=tolerance * float(expected.abs().max())
    )


def test_glued_keys_are_at_their_new_positions(session: Session) -> None:
    """Keys of the first layer depend on a token and its position alone: they are those of a full prefill."""
    model = tiny_model()
    chunks, suffix, text = chunks_of(model)
    with SidecarCache(model, session, 96) as cache:
        assert glue(cache, chunks).outcome is Outcome.APPLIED
        cached = len(text) - len(suffix)
        assert cache.physical_len == cache.get_seq_length() == cached
        _, full = full_prefill(model, text[:cached])
        assert_close(cache.keys(0), full.layers[0].keys)
        assert_close(cache.values(0), full.layers[0].values)
        # The first chunk is an exact prefix; the others have not seen what stands before them.
        first = LENGTHS[0]
        assert_close(cache.values(2)[:, :, :first], full.layers[2].values[:, :, :first])
        difference = (cache.values(2) - full.layers[2].values).abs().max()
        assert float(difference) > 0.1
        # Plain reuse: generate goes on from here.
        out = model.generate(text[None], past_key_values=cache, max_new_tokens=3, do_sample=False)
        assert out.shape[1] == len(text) + 3


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_ratio_1_is_a_full_prefill(session: Session, family: str, attention: str) -> None:
    model = tiny_model(family, attention)
    chunks, suffix, text = chunks_of(model)
    logits, full = full_prefill(model, text)
    with SidecarCache(model, session, 96) as cache:
        blended = Blender(model, cache, ratio=1.0).blend(chunks, suffix)
        assert blended.chosen is not None
        assert blended.chosen.rows.tolist() == list(range(LENGTHS[0], len(text)))
        assert torch.equal(blended.token_ids, text)
        assert_close(blended.logits, logits)
        for layer in range(LAYERS):
            assert_close(cache.keys(layer), full.layers[layer].keys)
            assert_close(cache.values(layer), full.layers[layer].values)
        # And the text goes on from it.
        cache.crop(-1)
        ours = model.generate(text[None], past_key_values=cache, max_new_tokens=12, do_sample=False)
        assert torch.equal(ours, model.generate(text[None], max_new_tokens=12, do_sample=False))


def test_ratio_0_recomputes_the_suffix(session: Session) -> None:
    model = tiny_model()
    chunks, suffix, text = chunks_of(model)
    cached = len(text) - len(suffix)
    with SidecarCache(model, session, 96) as cache, torch.no_grad():
        glue(cache, chunks)
        # Behind the check layer: plain reuse, with the first layer's rows as they are anyway.
        model(input_ids=text[None, cached:], past_key_values=cache)
        reused = [cache.values(layer).clone() for layer in range(LAYERS)]
        blended = Blender(model, cache, ratio=0.0).blend(chunks, suffix)
        assert blended.chosen is not None
        assert blended.chosen.rows.tolist() == list(range(cached, len(text)))
        assert blended.chosen.limits.tolist() == list(range(cached + 1, len(text) + 1))
        for layer in range(LAYERS):
            assert_close(cache.values(layer), reused[layer])


def reference_blend(
    model: Any, text: torch.Tensor, cache: SidecarCache, rows: torch.Tensor
) -> list[torch.Tensor]:
    """Values of all layers, `rows` recomputed from `cache` as it was glued. Float64, by hand, for Llama."""
    body = model.model.double()
    hidden = body.embed_tokens(text)
    cos, sin = (part[0] for part in body.rotary_emb(hidden[None], torch.arange(len(text))[None]))
    cos, sin = cos.double(), sin.double()
    results = []
    for index, layer in enumerate(body.layers):
        chosen = torch.arange(len(text)) if index == 0 else rows
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)

        def heads(rows_of: torch.Tensor) -> torch.Tensor:
            return rows_of.view(len(rows_of), -1, 16).transpose(0, 1)

        def turned(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            swapped = torch.cat([-x[..., 8:], x[..., :8]], -1)
            return x * cos[at] + swapped * sin[at]

        keys = torch.zeros(2, len(text), 16, dtype=torch.float64)
        values = torch.zeros_like(keys)
        held = cache.physical_len
        keys[:, :held], values[:, :held] = cache.keys(index)[0].double(), cache.values(index)[0].double()
        keys[:, chosen] = turned(heads(attention.k_proj(normed)), chosen)
        values[:, chosen] = heads(attention.v_proj(normed))
        results.append(values[None])
        queries = turned(heads(attention.q_proj(normed)), chosen)
        logits = queries @ keys.repeat_interleave(2, 0).mT * attention.scaling
        logits[:, torch.arange(len(text))[None, :] > chosen[:, None]] = -torch.inf
        mixed = logits.softmax(-1) @ values.repeat_interleave(2, 0)
        hidden = hidden + attention.o_proj(mixed.transpose(0, 1).flatten(1))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        if index == 0:
            hidden = hidden[rows]
    model.float()
    return results


@pytest.mark.parametrize("ratio", [0.15, 0.5])
def test_chosen_rows_diverge_most_and_are_recomputed(session: Session, ratio: float) -> None:
    model = tiny_model()
    chunks, suffix, text = chunks_of(model)
    cached = len(text) - len(suffix)
    with SidecarCache(model, session, 96) as cache, torch.no_grad():
        blended = Blender(model, cache, ratio=ratio).blend(chunks, suffix)
        values = [cache.values(layer).clone() for layer in range(LAYERS)]
        assert blended.chosen is not None
        glue(cache, chunks)
        # Values of the check layer, computed for all tokens, against the cached ones.
        _, full = full_prefill(model, text)
        moved = (full.layers[1].values - torch.nn.functional.pad(cache.values(1), (0, 0, 0, 8)))[0]
        divergence = moved.double().square().sum((0, 2))[LENGTHS[0] : cached]
        count = int((cached - LENGTHS[0]) * ratio)
        expected = (divergence.topk(count).indices + LENGTHS[0]).sort().values.tolist()
        assert blended.chosen.hkvd_rows().tolist() == expected
        assert blended.chosen.rows.tolist() == [*expected, *range(cached, len(text))]
        rows = torch.from_numpy(blended.chosen.rows.astype("int64"))
        for layer, wanted in enumerate(reference_blend(model, text, cache, rows)):
            assert_close(values[layer], wanted)


def test_a_leaking_mask_would_be_noticed(session: Session) -> None:
    """The mask of many implementations, aligned to the bottom right, lets rows see their future."""

    class Leaking(Blender):
        def visible(self, rows: torch.Tensor, limits: torch.Tensor, tokens: int) -> torch.Tensor:
            last = tokens - len(rows) + torch.arange(len(rows)) + 1
            return torch.arange(tokens) < last[:, None]

    model = tiny_model()
    chunks, suffix, _ = chunks_of(model)
    with SidecarCache(model, session, 96) as cache:
        values, rows = [], []
        for blender in (Blender, Leaking):
            blended = blender(model, cache, ratio=0.5).blend(chunks, suffix)
            assert blended.chosen is not None
            rows.append(blended.chosen.rows.tolist())
            values.append(cache.values(LAYERS - 1).clone())
    assert rows[0] == rows[1]
    assert float((values[0] - values[1]).abs().max()) > 0.1 * float(values[0].abs().max())


@pytest.mark.parametrize(
    "fault",
    [
        "",
        "lane.job_start:kill",
        "lane.job_start:kill:2",
        "lane.job_start:kill:3",
        "rerotate.mid_rows:kill",
        "fuse.mid_rows:kill",
    ],
)
def test_without_a_service_everything_is_computed(start_service: Start, fault: str) -> None:
    """It dies before the first call, before the choice, before a layer is fused, while rows are turned."""
    model = tiny_model()
    chunks, suffix, text = chunks_of(model)
    logits, full = full_prefill(model, text)
    service = start_service(*([f"--fault={fault}"] if fault else []))
    with kvtriage.connect(service.endpoint) as session, SidecarCache(model, session, 96) as cache:
        blender = Blender(model, cache, ratio=0.2)
        if not fault:
            service.process.kill()
            service.process.wait()
        blended = blender.blend(chunks, suffix)
        assert service.process.wait(10) != 0
        assert blended.chosen is None
        assert_close(blended.logits, logits)
        assert_close(cache.values(2), full.layers[2].values)
        assert cache.physical_len == len(text)


def test_a_blended_text_is_compacted_like_any_other(session: Session) -> None:
    model = tiny_model()
    chunks, suffix, _ = chunks_of(model)
    with SidecarCache(model, session, 96, policy="knorm", kept_tokens=40, every=8) as cache:
        with cache.attach(model):  # whose taps leave the blend's own pass alone
            blended = Blender(model, cache, ratio=0.5).blend(chunks, suffix)
            assert cache.evictions == 0 and cache.physical_len == 68
        cache.crop(-1)
        text = generate(model, cache, blended.token_ids[None], max_new_tokens=20, do_sample=False)
        assert text[0, 68] == blended.logits.argmax()
        assert cache.evictions == 2 and cache.physical_len < 50


def test_other_layers_are_refused(session: Session) -> None:
    model = tiny_model()
    chunks, suffix, _ = chunks_of(model)
    with SidecarCache(model, session, 96) as cache:
        del model.model.layers[0].input_layernorm
        with pytest.raises(UnsupportedModel, match="input_layernorm and v_proj"):
            Blender(model, cache).blend(chunks, suffix)


def test_arguments(session: Session) -> None:
    model = tiny_model()
    chunks, suffix, _ = chunks_of(model)
    with SidecarCache(model, session, 64) as cache:
        blender = Blender(model, cache)
        with pytest.raises(ValueError, match="chunks and a suffix"):
            blender.blend(chunks, suffix[:0])
        with pytest.raises(ValueError, match="68 rows do not fit"):
            blender.blend(chunks, suffix)
        with pytest.raises(ValueError, match="check_layer"):
            Blender(model, cache, check_layer=LAYERS)
        with pytest.raises(ValueError, match="metric"):
            Blender(model, cache, metric=kvtriage.DivergenceMetric.K_L2)
    with SidecarCache(model, session, 64, batch=2) as cache, pytest.raises(ValueError, match="one sequence"):
        glue(cache, chunks)
