"""SmolLM2-135M: what holds for small random models holds for a real one."""

from __future__ import annotations

from typing import Any

import kvtriage
import pytest
import torch
from kvtriage import Policy, PolicyParts, Protect, Session, Window
from kvtriage.eval.models import load_model
from kvtriage.transformers import Blender, SidecarCache, generate, prefill_chunk
from masked_reference import Evictions, reference_logits

FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
NEEDLE = "The special magic number is 48213. Remember it. "
GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 12}


@pytest.fixture(scope="module")
def smollm2() -> tuple[Any, Any]:
    """The model in float32, and its tokenizer."""
    loaded = load_model("smollm2")
    return loaded.model, loaded.tokenizer


def prompt(tokenizer: Any, question: str = "What is the special magic number?") -> torch.Tensor:
    text = FILLER * 6 + NEEDLE + FILLER * 6 + question
    chat = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")["input_ids"]


def test_the_needle_is_found_through_the_lent_cache(smollm2: tuple[Any, Any], session: Session) -> None:
    model, tokenizer = smollm2
    ids = prompt(tokenizer)
    stock = model.generate(ids, **GREEDY)
    assert "48213" in tokenizer.decode(stock[0, ids.shape[1] :])
    with SidecarCache(model, session, 512, policy="snapkv", kept_ratio=1.0) as cache:
        assert torch.equal(generate(model, cache, ids, **GREEDY), stock)


@torch.no_grad()
def test_logits_are_those_of_the_kept_tokens(smollm2: tuple[Any, Any], session: Session) -> None:
    model, tokenizer = smollm2
    text = prompt(tokenizer)
    small = PolicyParts(window=Window(last=16), protect=Protect(recent=16))
    evictions = Evictions()
    policy = Policy("snapkv+obc-key", small)
    with SidecarCache(model, session, 512, policy=policy, kept_ratio=0.3) as cache, cache.attach(model):
        model(input_ids=text[:, :-30], past_key_values=cache)
        cache.evict()
        evictions.note(cache)
        logits = model(input_ids=text[:, -30:], past_key_values=cache).logits
    expected = reference_logits(model, text, evictions)[:, -30:]
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


@torch.no_grad()
def test_a_blend_of_all_rows_is_a_full_prefill(smollm2: tuple[Any, Any], session: Session) -> None:
    model, tokenizer = smollm2
    ids = prompt(tokenizer)[0]
    first, second, suffix = ids[:150], ids[150:-20], ids[-20:]
    chunks = [prefill_chunk(model, first), prefill_chunk(model, second)]
    full = model(input_ids=ids[None], use_cache=False, logits_to_keep=1).logits[0, -1].log_softmax(-1)
    with SidecarCache(model, session, 512) as cache:
        gaps = []
        for ratio in (1.0, 0.15, 0.0):
            blended = Blender(model, cache, ratio=ratio).blend(chunks, suffix)
            assert blended.chosen is not None
            gaps.append(float((full.exp() * (full - blended.logits.log_softmax(-1))).sum()))
        print("divergence from a full prefill at ratio 1, 0.15, 0:", gaps)
        assert gaps[0] < 1e-6 and gaps[0] < gaps[1] < gaps[2]


def test_the_service_dies_under_it(
    smollm2: tuple[Any, Any], start_service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model, tokenizer = smollm2
    ids = prompt(tokenizer)
    service = start_service("--fault=ledger.after_moving:kill:7")
    with (
        kvtriage.connect(service.endpoint) as session,
        SidecarCache(model, session, 512, policy="snapkv", kept_ratio=0.5) as cache,
    ):
        ours = generate(model, cache, ids, **GREEDY)
        assert torch.equal(ours, model.generate(ids, **GREEDY))
        assert any("computing the prompt" in record.message for record in caplog.records)
