"""No eviction is lost because its answer would be too large."""

from __future__ import annotations

import pytest
import torch
from kvtriage import KeptFormat, LengthRule, Outcome, Session
from kvtriage.transformers import SidecarCache
from kvtriage.transformers.answer_format import AnswerFormat
from tiny_models import LAYERS, tiny_model, tokens
from transformers import LlamaConfig

# 128 lists: 9,000 indices of each are 4.6 MB, the bits of 9,100 rows 146 kB.
WIDE_HEADS, WIDE_LAYERS, ROWS, KEPT = 64, 2, 9_100, 9_000
LIMIT = 4 << 20


def wide_config() -> LlamaConfig:
    return LlamaConfig(
        num_hidden_layers=WIDE_LAYERS,
        num_attention_heads=WIDE_HEADS,
        num_key_value_heads=WIDE_HEADS,
        hidden_size=WIDE_HEADS * 4,
        head_dim=4,
    )


def limit(cache: SidecarCache, answer_bytes: int) -> None:
    """As if the service answered with no more than that."""
    shape = cache.geometry
    cache._calls._answers = AnswerFormat(answer_bytes, cache.batch, shape.layers, shape.kv_heads)


def test_the_first_format_that_fits() -> None:
    llama = AnswerFormat(LIMIT, batch=1, layers=32, kv_heads=8)
    assert llama.choose(8192, 1024) is KeptFormat.INDICES
    assert llama.choose(8192, None) is KeptFormat.BITMAP
    assert llama.choose(65536, 32768) is KeptFormat.BITMAP
    assert llama.choose(1 << 20, 1024) is KeptFormat.INDICES  # few of many rows
    assert llama.choose(1 << 20, 32768) is KeptFormat.COUNTS
    assert AnswerFormat(LIMIT, 16, 32, 8).choose(65536, 32768) is KeptFormat.COUNTS


def test_an_eviction_with_a_large_answer_is_made(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    model = wide_config()
    with SidecarCache(model, session, ROWS, dtype=torch.float32, device="cpu", policy="streaming") as cache:
        torch.manual_seed(5)
        rows = torch.randn(WIDE_LAYERS, 2, 1, WIDE_HEADS, ROWS, 4)
        for layer in range(WIDE_LAYERS):
            cache.update(rows[layer, 0], rows[layer, 1], layer)

        with monkeypatch.context() as always:
            always.setattr(AnswerFormat, "choose", lambda *_: KeptFormat.INDICES)
            refused = cache.compress(kept_tokens=KEPT)
        assert refused.outcome is Outcome.UNCHANGED and refused.error is not None
        assert refused.error.reason == "result_too_large" and cache.physical_len == ROWS
        # What the service counts is not above what we expect.
        ours = AnswerFormat(LIMIT, 1, WIDE_LAYERS, WIDE_HEADS)
        assert refused.error.got <= ours._bytes(4 * KEPT) <= refused.error.got * 1.01

        assert cache.compress(kept_tokens=KEPT).outcome is Outcome.APPLIED
        wanted = torch.cat([torch.arange(4), torch.arange(ROWS - KEPT + 4, ROWS)])
        for layer in range(WIDE_LAYERS):
            assert torch.equal(cache.keys(layer), rows[layer, 0][:, :, wanted])
            assert torch.equal(cache.values(layer), rows[layer, 1][:, :, wanted])
            assert (cache.original_positions(layer) == wanted).all()


@pytest.mark.parametrize("policy", ["snapkv", "adakv"])
def test_with_counts_alone_the_text_is_the_same(session: Session, policy: str) -> None:
    """Also where heads keep different numbers of rows, which the counts tell."""
    model = tiny_model()
    lengths = LengthRule.ANY if policy == "adakv" else LengthRule.ONE
    texts = []
    for answer_bytes in (LIMIT, 5_500, 1_000):
        with SidecarCache(
            model, session, 128, policy=policy, kept_tokens=40, lengths=lengths, every=1000
        ) as cache:
            limit(cache, answer_bytes)
            with cache.attach(model):
                text = model.generate(tokens(96), past_key_values=cache, max_new_tokens=16, do_sample=False)
                texts.append(text)
                assert cache.evictions == 1 and cache.evictions_missed == 0
                if answer_bytes > 1_000:
                    assert cache.original_positions(LAYERS - 1).shape[-1] == cache.physical_len
                    continue
                with pytest.raises(ValueError, match="max_response_bytes"):
                    cache.original_positions(0)
            cache.reset()
            assert cache.original_positions(0).shape[-1] == 0
    assert all(torch.equal(text, texts[0]) for text in texts)
