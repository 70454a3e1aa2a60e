"""After evictions the model sees exactly the tokens that were kept, at the positions that they have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kvtriage import LengthRule, Policy, PolicyParts, Protect, Session, Window
from kvtriage.transformers import SidecarCache
from masked_reference import Evictions, reference_logits
from tiny_models import FAMILIES, tiny_model, tokens

# Windows and protected rows of these texts' size.
SMALL = PolicyParts(window=Window(last=8), protect=Protect(recent=8))
SNAPKV = Policy("snapkv", SMALL)
ADAKV = Policy("adakv", SMALL)


@torch.no_grad()
def run(model: Any, cache: SidecarCache, passes: list[torch.Tensor], evictions: Evictions) -> torch.Tensor:
    """Feeds a text in passes of several or single tokens; the logits of all of them. Notes each eviction."""
    logits = []
    with cache.attach(model):
        for ids in passes:
            logits.append(model(input_ids=ids, past_key_values=cache).logits)
            if cache.evictions > len(evictions.made):
                # It was made before this pass, of which every row is still in the cache.
                late = ids.shape[1]
                evictions.made.append(
                    (
                        cache.logical_len - late,
                        [
                            cache.original_positions(layer)[..., :-late]
                            for layer in range(cache.geometry.layers)
                        ],
                    )
                )
    return torch.cat(logits, dim=1)


def split(text: torch.Tensor, *lengths: int) -> list[torch.Tensor]:
    """The text in passes of these lengths, what is left one token at a time."""
    rest = text.shape[1] - sum(lengths)
    return list(torch.split(text, [*lengths, *([1] * rest)], dim=1))


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_kept_tokens(session: Session, family: str, attention: str) -> None:
    model = tiny_model(family, attention)
    text = tokens(90)
    evictions = Evictions()
    with SidecarCache(model, session, 128, policy=SNAPKV, kept_tokens=24, every=10) as cache:
        logits = run(model, cache, split(text, 60), evictions)
        assert cache.evictions == len(evictions.made) == 3
        assert cache.physical_len == 24 + 10
    expected = reference_logits(model, text, evictions, softcap=family == "gemma2" and attention == "eager")
    assert_close(logits, expected)
    # The evictions show: without them the logits are others.
    whole = reference_logits(model, text, Evictions(), softcap=family == "gemma2" and attention == "eager")
    assert float((logits - whole)[:, 60:].abs().max()) > 100 * float((logits - expected).abs().max())


def test_bfloat16(session: Session) -> None:
    """Rows are moved as they are: what is left is the model's own rounding."""
    model = tiny_model(dtype=torch.bfloat16)
    text = tokens(70)
    evictions = Evictions()
    with SidecarCache(model, session, 96, policy=SNAPKV, kept_tokens=24, every=10) as cache:
        logits = run(model, cache, split(text, 50), evictions)
        assert len(evictions.made) == 2
    expected = reference_logits(model, text, evictions)
    whole = reference_logits(model, text, Evictions())
    assert float((logits - expected).norm()) < 0.03 * float(expected.norm())
    assert float((whole - expected).norm()) > 0.3 * float(expected.norm())


@pytest.mark.parametrize("policy", ["streaming", "tova", "knorm", "keydiff", "snapkv+obc-key", "snapkv+drop"])
def test_policies(session: Session, policy: str) -> None:
    model = tiny_model()
    text = tokens(70)
    evictions = Evictions()
    with SidecarCache(model, session, 128, policy=policy, kept_ratio=0.4, every=8) as cache:
        logits = run(model, cache, split(text, 50), evictions)
        assert len(evictions.made) == 3
    assert_close(logits, reference_logits(model, text, evictions))


def test_second_turn_of_several_tokens(session: Session) -> None:
    """Each token of a longer pass sees its own past only, also behind an eviction."""
    model = tiny_model()
    text = tokens(80)
    evictions = Evictions()
    with SidecarCache(model, session, 128, policy=SNAPKV, kept_tokens=20) as cache:
        logits = run(model, cache, split(text, 40, 1, 1, 4, 1, 20), evictions)
        assert len(evictions.made) == 3
    assert_close(logits, reference_logits(model, text, evictions))


def test_chunked_prefill_is_compacted_at_its_end(session: Session) -> None:
    model = tiny_model()
    text = tokens(64)
    evictions = Evictions()
    with SidecarCache(model, session, 128, policy=SNAPKV, kept_tokens=20) as cache:
        logits = run(model, cache, split(text, 20, 20, 20), evictions)
        assert [after for after, _ in evictions.made] == [60]
    assert_close(logits, reference_logits(model, text, evictions))


def test_batch_of_sequences_with_sets_of_their_own(session: Session) -> None:
    model = tiny_model()
    text = tokens(60, batch=3)
    evictions = Evictions()
    with SidecarCache(model, session, 96, batch=3, policy=SNAPKV, kept_tokens=16, every=6) as cache:
        logits = run(model, cache, split(text, 40), evictions)
        kept = evictions.made[0][1][0]
        assert not torch.equal(kept[0], kept[1])
    assert_close(logits, reference_logits(model, text, evictions))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_heads_that_keep_different_numbers_of_rows(session: Session, attention: str) -> None:
    model = tiny_model(attention=attention)
    text = tokens(70)
    evictions = Evictions()
    with SidecarCache(
        model, session, 96, policy=ADAKV, kept_tokens=24, lengths=LengthRule.ANY, every=10
    ) as cache:
        logits = run(model, cache, split(text, 50, 1, 5), evictions)
        assert cache.evictions == 1 and cache.evictions_missed == 2
        counts = (evictions.made[0][1][0] >= 0).sum(-1)
        assert int(counts.min()) < int(counts.max()) and int(counts.sum()) == 2 * 24
        with pytest.raises(RuntimeError, match="only an attached cache"):
            model(input_ids=tokens(1), past_key_values=cache)
        rows = cache.physical_len
        with pytest.raises(ValueError, match="compacted once"):
            cache.compress("knorm", kept_tokens=10)
        assert cache.physical_len == rows
    assert_close(logits, reference_logits(model, text, evictions))
