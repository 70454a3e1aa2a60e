"""`generate` of transformers on a SidecarCache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kvtriage import Policy, PolicyParts, Protect, Session, Window
from kvtriage.transformers import SidecarCache, generate
from masked_reference import Evictions, reference_logits, watch
from tiny_models import FAMILIES, tiny_model, tokens

SNAPKV = Policy("snapkv", PolicyParts(window=Window(last=8), protect=Protect(recent=8)))
GREEDY: dict[str, Any] = {"do_sample": False}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_same_tokens_and_rows_as_the_stock_cache_when_all_fits(
    session: Session, family: str, dtype: torch.dtype
) -> None:
    model = tiny_model(family, dtype=dtype)
    text = tokens(40)
    stock = model.generate(text, max_new_tokens=24, return_dict_in_generate=True, **GREEDY)
    with SidecarCache(model, session, 96, policy=SNAPKV, kept_tokens=90, every=4) as cache:
        ours = generate(model, cache, text, max_new_tokens=24, **GREEDY)
        assert torch.equal(ours, stock.sequences)
        for layer, expected in enumerate(stock.past_key_values.layers):
            assert torch.equal(cache.keys(layer), expected.keys)
            assert torch.equal(cache.values(layer), expected.values)
        assert cache.evictions == 0 and cache.lent.tensor.dtype == dtype


def next_tokens(model: Any, text: torch.Tensor, evictions: Evictions) -> list[int]:
    return reference_logits(model, text, evictions)[0].argmax(-1).tolist()


@pytest.mark.parametrize("policy", [SNAPKV, "h2o", "expected-attention", "streaming"])
def test_several_turns(session: Session, policy: Policy | str) -> None:
    """Each token is the one that follows from the tokens that were kept, over three user turns."""
    model = tiny_model()
    evictions = Evictions()
    text = tokens(50)
    with SidecarCache(model, session, 160, policy=policy, kept_ratio=0.4, every=8) as cache:
        watch(cache, evictions)
        for turn in range(3):
            begin = text.shape[1]
            text = generate(model, cache, text, max_new_tokens=20, **GREEDY)
            assert text.shape[1] == begin + 20
            expected = next_tokens(model, text, evictions)
            assert text[0, begin:].tolist() == expected[begin - 1 : -1]
            text = torch.cat([text, tokens(15, seed=turn + 2)], dim=1)
        assert cache.evictions == len(evictions.made) >= 6
        assert cache.evictions_missed == 0
        assert cache.physical_len < 0.4 * cache.logical_len + 8


@pytest.mark.parametrize("policy", [SNAPKV, "h2o", "expected-attention"])
def test_renumbered_rows_are_an_ordinary_short_text(session: Session, policy: Policy | str) -> None:
    """Kept keys are turned to 0, 1, ...: as if the cache had always been that short."""
    model = tiny_model()
    text = tokens(50)
    with SidecarCache(model, session, 160, policy=policy, kept_tokens=24, every=8, renumber=True) as cache:
        for turn in range(2):
            begin = text.shape[1]
            text = generate(model, cache, text, max_new_tokens=20, **GREEDY)
            assert text.shape[1] == begin + 20
            assert cache.get_seq_length() == cache.physical_len < 24 + 9
            assert cache.logical_len == text.shape[1] - 1
            text = torch.cat([text, tokens(15, seed=turn + 2)], dim=1)
        assert cache.evictions >= 5 and cache.evictions_missed == 0


@torch.no_grad()
def test_renumbered_keys_are_turned_to_their_row(session: Session) -> None:
    model = tiny_model()
    text = tokens(50)
    with (
        SidecarCache(model, session, 64, policy="streaming", renumber=True) as cache,
        cache.attach(model),
    ):
        model(input_ids=text, past_key_values=cache)
        cache.compress(kept_tokens=20)
        assert cache.get_seq_length() == 20 and cache.logical_len == 50
        kept = cache.original_positions(0)[0, 0]
        assert kept.tolist() == [0, 1, 2, 3, *range(34, 50)]
        # The first layer's keys depend on a token and its position alone.
        alone = model(input_ids=text[:, kept], use_cache=True).past_key_values
        torch.testing.assert_close(cache.keys(0), alone.layers[0].keys, rtol=1e-5, atol=1e-5)
        logits = model(input_ids=tokens(3, seed=9), past_key_values=cache).logits
        assert logits.shape[1] == 3 and cache.get_seq_length() == 23


def test_assisted_generation(session: Session) -> None:
    """Drafts are settled before an eviction: what was rejected is gone by then."""
    model, assistant = tiny_model(), tiny_model(seed=8)
    evictions = Evictions()
    with SidecarCache(model, session, 160, policy=SNAPKV, kept_tokens=30, every=8) as cache:
        watch(cache, evictions)
        text = generate(model, cache, tokens(50), assistant_model=assistant, max_new_tokens=30, **GREEDY)
        assert len(evictions.made) >= 3
    assert text[0, 50:].tolist() == next_tokens(model, text, evictions)[49:-1]


def test_equal_prompts_in_a_batch(session: Session) -> None:
    model = tiny_model()
    evictions = Evictions()
    with SidecarCache(model, session, 96, batch=2, policy=SNAPKV, kept_tokens=30, every=8) as cache:
        watch(cache, evictions)
        text = generate(model, cache, tokens(50, batch=2), max_new_tokens=20, **GREEDY)
        assert len(evictions.made) == 3
    expected = reference_logits(model, text, evictions).argmax(-1)
    assert torch.equal(text[:, 50:], expected[:, 49:-1])


def test_padded_batch_runs_uncompressed(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model()
    text = tokens(40, batch=2)
    mask = torch.ones_like(text)
    mask[1, :7] = 0
    stock = model.generate(text, attention_mask=mask, max_new_tokens=20, **GREEDY)
    with SidecarCache(model, session, 96, batch=2, policy=SNAPKV, kept_tokens=20, every=4) as cache:
        ours = generate(model, cache, text, attention_mask=mask, max_new_tokens=20, **GREEDY)
        assert torch.equal(ours, stock)
        assert cache.evictions == 0 and cache.padded
        assert sum("padded" in record.message for record in caplog.records) == 1
        cache.reset()
        generate(model, cache, text, max_new_tokens=8, **GREEDY)
        assert cache.evictions > 0


def test_reset_is_a_new_text(session: Session) -> None:
    model = tiny_model()
    with SidecarCache(model, session, 96, policy="h2o", kept_tokens=20, every=4) as cache:
        first = generate(model, cache, tokens(40), max_new_tokens=12, **GREEDY)
        generate(model, cache, torch.cat([first, tokens(5, seed=3)], 1), max_new_tokens=12, **GREEDY)
        cache.reset()
        assert cache.physical_len == cache.get_seq_length() == cache.dropped == 0
        assert torch.equal(generate(model, cache, tokens(40), max_new_tokens=12, **GREEDY), first)


@torch.no_grad()
def test_crop(session: Session) -> None:
    model = tiny_model()
    text = tokens(60)
    with SidecarCache(model, session, 96, policy=SNAPKV) as cache, cache.attach(model):
        model(input_ids=text[:, :40], past_key_values=cache)
        cache.crop(35)
        assert cache.get_seq_length() == cache.physical_len == cache.usable_queries == 35
        cache.compress(kept_tokens=20)
        model(input_ids=text[:, 35:45], past_key_values=cache)
        cache.crop(-4)
        assert cache.get_seq_length() == 41 and cache.physical_len == 26 and cache.usable_queries == 6
        cache.crop(100)
        cache.crop(0)
        assert cache.get_seq_length() == 41
        with pytest.raises(ValueError, match="20 that an eviction kept"):
            cache.crop(34)
        assert cache.get_seq_length() == 41
        evictions = Evictions()
        evictions.made.append((35, [cache.original_positions(layer)[..., :20] for layer in range(3)]))
        logits = model(input_ids=text[:, 41:], past_key_values=cache).logits
    expected = reference_logits(model, text, evictions)[:, 41:]
    torch.testing.assert_close(logits, expected, rtol=2e-4, atol=2e-4 * float(expected.abs().max()))


@torch.no_grad()
def test_lengths_that_models_ask_for(session: Session) -> None:
    """By the positions of a pass, as transformers 5.2 asks, or by its length, as later versions do."""
    model = tiny_model()
    with SidecarCache(model, session, 96, policy=SNAPKV) as cache, cache.attach(model):
        model(input_ids=tokens(50), past_key_values=cache)
        cache.compress(kept_tokens=20)
        assert cache.get_seq_length() == 50
        assert cache.get_mask_sizes(torch.arange(50, 54), 0) == cache.get_mask_sizes(4, 0) == (24, 30)
        assert cache.layers[0].get_max_cache_shape() == -1 and cache.is_sliding == [False] * 3


def test_a_text_that_does_not_fit_says_so(session: Session) -> None:
    model = tiny_model()
    with SidecarCache(model, session, 32) as cache, pytest.raises(ValueError, match="33 rows do not fit"):
        generate(model, cache, tokens(33), max_new_tokens=1, **GREEDY)


def test_a_text_longer_than_the_capacity(session: Session) -> None:
    """Rows are used up before the next eviction is due: it is made then."""
    model, evictions = tiny_model(), Evictions()
    with SidecarCache(model, session, 64, policy=SNAPKV, kept_tokens=40, every=1000) as cache:
        watch(cache, evictions)
        text = generate(model, cache, tokens(60), max_new_tokens=100, **GREEDY)
        assert cache.evictions == 5 and cache.physical_len <= 64
        expected = next_tokens(model, text, evictions)
        assert text[0, 60:].tolist() == expected[59:-1]


def test_a_turn_after_tokens_were_taken_back(session: Session) -> None:
    """An answer is taken back, and another, longer question asked: its end is the end of a prompt."""
    model = tiny_model()
    with SidecarCache(model, session, 160, policy=SNAPKV, kept_tokens=40, every=1000) as cache:
        text = generate(model, cache, tokens(60), max_new_tokens=9, **GREEDY)
        cache.crop(62)
        again = torch.cat([text[:, :62], tokens(70, seed=2)], dim=1)
        generate(model, cache, again, max_new_tokens=9, **GREEDY)
        assert cache.evictions == 2 and cache.physical_len == 40 + 8


def test_several_returned_sequences_are_a_batch(session: Session) -> None:
    model = tiny_model()
    with SidecarCache(model, session, 96, batch=2, policy=SNAPKV, kept_tokens=20) as cache:
        torch.manual_seed(3)
        options: dict[str, Any] = {"do_sample": True, "num_return_sequences": 2, "max_new_tokens": 12}
        text = generate(model, cache, tokens(50), **options)
        assert text.shape == (2, 62) and not torch.equal(text[0], text[1])
        assert cache.evictions == 1 and cache.physical_len == 20 + 11
