"""The service dies at every step of a generation: the same text as uncompressed, or KvDamaged. Never nonsense."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import kvtriage
import pytest
import torch
from kvtriage import LengthRule, Policy, PolicyParts, Protect, Window
from kvtriage.transformers import KvDamaged, SidecarCache, generate
from masked_reference import Evictions, reference_logits, watch
from tiny_models import LAYERS, tiny_model, tokens

SNAPKV = Policy("snapkv", PolicyParts(window=Window(last=8), protect=Protect(recent=8)))
Start = Callable[..., kvtriage.PrivateService]
# At the first eviction. Nothing was moved.
UNHARMED = [
    "lane.job_start:delay=5000,admit.after_enqueue:kill",
    "lane.job_start:kill",
    "lane.after_select:kill",
    "ledger.after_open:kill",
]
# In the middle of the rows: of the first layer, of a later one, of the first layer at the second eviction.
HALF_MOVED = ["ledger.after_moving:kill", "move.mid_rows:kill:2", f"ledger.after_moving:kill:{LAYERS + 1}"]
# All rows were moved, and the answer is lost.
MOVED = ["ledger.after_closed:kill", "result.after_store:kill"]


def stock_text(model: Any, new: int = 24) -> torch.Tensor:
    return model.generate(tokens(40), max_new_tokens=new, do_sample=False)


def our_text(model: Any, cache: SidecarCache, new: int = 24) -> torch.Tensor:
    return generate(model, cache, tokens(40), max_new_tokens=new, do_sample=False)


def plainly(model: Any, cache: SidecarCache) -> torch.Tensor:
    """By transformers' own generate, which knows nothing of damage."""
    with cache.attach(model):
        return model.generate(tokens(40), past_key_values=cache, max_new_tokens=24, do_sample=False)


@pytest.mark.parametrize("fault", UNHARMED)
def test_dead_before_it_moved_anything(
    start_service: Start, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    model = tiny_model()
    service = start_service(f"--fault={fault}")
    with (
        kvtriage.connect(service.endpoint) as session,
        SidecarCache(model, session, 96, policy=SNAPKV, kept_tokens=20, every=8) as cache,
    ):
        assert torch.equal(plainly(model, cache), stock_text(model))
        assert service.process.wait(10) == -signal.SIGKILL
        assert cache.evictions == 0 and cache.evictions_missed == 3
        loud = [record for record in caplog.records if "going on uncompressed" in record.message]
        assert len(loud) == 2  # the call that it died in, and that it is away


@pytest.mark.parametrize("fault", HALF_MOVED)
def test_dead_while_it_moved_rows(start_service: Start, fault: str) -> None:
    model = tiny_model()
    service = start_service(f"--fault={fault}")
    with (
        kvtriage.connect(service.endpoint) as session,
        SidecarCache(model, session, 96, policy=SNAPKV, kept_tokens=20, every=8) as cache,
    ):
        with pytest.raises(KvDamaged) as raised:
            plainly(model, cache)
        assert list(raised.value.sequence_ids) == cache.book.ids and cache.damaged
        with pytest.raises(KvDamaged), cache.attach(model):
            model(input_ids=tokens(1), past_key_values=cache)
        cache.reset()
        assert torch.equal(plainly(model, cache), stock_text(model))


def test_generate_computes_the_prompt_once_more(
    start_service: Start, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model()
    service = start_service("--fault=move.mid_rows:kill:2")
    with (
        kvtriage.connect(service.endpoint) as session,
        SidecarCache(model, session, 96, policy=SNAPKV, kept_tokens=20, every=8) as cache,
    ):
        assert torch.equal(our_text(model, cache), stock_text(model))
        assert sum("computing the prompt" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("fault", MOVED)
def test_dead_after_it_moved_everything(start_service: Start, fault: str) -> None:
    """The ledger says that the eviction is complete: the text is that of one eviction and no more."""
    model = tiny_model()
    healthy = start_service()
    with (
        kvtriage.connect(healthy.endpoint) as session,
        SidecarCache(model, session, 96, policy=SNAPKV, kept_tokens=20, every=1000) as cache,
    ):
        expected = plainly(model, cache)
        assert cache.evictions == 1
    service = start_service(f"--fault={fault}")
    with (
        kvtriage.connect(service.endpoint) as session,
        SidecarCache(model, session, 96, policy=SNAPKV, kept_tokens=20, every=8) as cache,
    ):
        assert torch.equal(plainly(model, cache), expected)
        assert cache.evictions == 1 and cache.evictions_missed == 2
        with pytest.raises(ValueError, match="answer to an eviction was lost"):
            cache.original_positions(0)


def test_heads_of_unequal_length_when_the_answer_is_lost(start_service: Start) -> None:
    """How many rows each head kept is in the ledger, so that no row without a token is attended to."""
    model = tiny_model()
    uneven = Policy("adakv", PolicyParts(window=Window(last=8), protect=Protect(recent=8)))
    texts = []
    for flags in ([], ["--fault=ledger.after_closed:kill"]):
        service = start_service(*flags)
        with (
            kvtriage.connect(service.endpoint) as session,
            SidecarCache(
                model, session, 96, policy=uneven, kept_tokens=24, lengths=LengthRule.ANY, every=1000
            ) as cache,
        ):
            texts.append(plainly(model, cache))
            assert cache.evictions == 1 and cache.holes is not None
    assert torch.equal(*texts)


def test_part_of_a_batch_was_moved(start_service: Start) -> None:
    model = tiny_model()
    service = start_service("--fault=move.between_groups:kill")
    with (
        kvtriage.connect(service.endpoint) as session,
        SidecarCache(model, session, 96, batch=2, policy=SNAPKV, kept_tokens=20) as cache,
    ):
        text = tokens(40, batch=2)
        stock = model.generate(text, max_new_tokens=12, do_sample=False)
        with pytest.raises(KvDamaged), cache.attach(model):
            model.generate(text, past_key_values=cache, max_new_tokens=12, do_sample=False)
        cache.reset()
        assert torch.equal(generate(model, cache, text, max_new_tokens=12, do_sample=False), stock)


@pytest.mark.parametrize("policy", [SNAPKV, "h2o"])
def test_it_comes_back(start_service: Start, policy: Policy | str) -> None:
    model = tiny_model()
    service = start_service()
    with (
        kvtriage.connect(service.endpoint) as session,
        SidecarCache(model, session, 128, policy=policy, kept_tokens=20, every=8) as cache,
    ):
        text = our_text(model, cache)
        assert cache.evictions == 3
        service.process.kill()
        service.process.wait()
        text = generate(model, cache, text, max_new_tokens=10, do_sample=False)
        assert cache.evictions == 3 and cache.evictions_missed >= 1
        service.start()
        assert session.wait_alive(10000)
        generate(model, cache, text, max_new_tokens=20, do_sample=False)
        assert cache.evictions >= 5 and cache.physical_len <= 28


@pytest.mark.parametrize("policy", ["criticalkv", "expected-attention"])
def test_away_before_a_scorer_has_lent_what_it_alone_needs(start_service: Start, policy: str) -> None:
    """W_O and the moments of the queries are lent at the first eviction: nothing of that reaches the model."""
    model = tiny_model()
    service = start_service()
    with (
        kvtriage.connect(service.endpoint) as session,
        SidecarCache(model, session, 192, policy=policy, kept_tokens=90, every=8) as cache,
    ):
        service.process.kill()
        service.process.wait()
        with cache.attach(model):
            text = model.generate(tokens(120), past_key_values=cache, max_new_tokens=12, do_sample=False)
        expected = model.generate(tokens(120), max_new_tokens=12, do_sample=False)
        assert torch.equal(text, expected) and cache.evictions_missed == 2
        outcome = cache.compress(kept_tokens=90)
        assert outcome.outcome is kvtriage.Outcome.UNAVAILABLE and outcome.damaged == []
        service.start()
        assert session.wait_alive(10000)
        assert cache.compress(kept_tokens=90).outcome is kvtriage.Outcome.APPLIED


def test_a_hung_service_costs_the_deadline_of_a_call(start_service: Start) -> None:
    """Also where more than one call is made: lending the moments of the queries, then releasing a sequence."""
    model = tiny_model()
    service = start_service()
    call = kvtriage.CallOptions(deadline_ms=300)
    with kvtriage.connect(service.endpoint, settle_ms=300) as session:
        cache = SidecarCache(model, session, 192, policy="expected-attention", kept_tokens=90, call=call)
        with cache.attach(model), torch.no_grad():
            model(input_ids=tokens(120), past_key_values=cache)
            service.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, service.process.pid, os.WSTOPPED)  # all of its threads stand still
            begin = time.monotonic()
            outcome = cache.evict()
            assert outcome is not None and outcome.outcome is not kvtriage.Outcome.APPLIED
            cache.reset()
            assert time.monotonic() - begin < 15  # 0.3 s a call, and 5 s to settle the one that lends
        service.process.kill()
        cache.close()


def test_a_stopped_service_may_still_write(start_service: Start) -> None:
    """The memory is not used again before the service that was moving rows is gone."""
    model = tiny_model()
    service = start_service("--fault=move.mid_rows:delay=60000")
    call = kvtriage.CallOptions(deadline_ms=500)
    with (
        kvtriage.connect(service.endpoint, settle_ms=300) as session,
        SidecarCache(model, session, 96, policy=SNAPKV, kept_tokens=20, call=call) as cache,
    ):
        with pytest.raises(KvDamaged):
            plainly(model, cache)
        assert cache.physical_len == 40
        with pytest.raises(KvDamaged, match="may still write"):
            cache.reset(wait_seconds=0.1)
        service.process.kill()
        cache.reset()
        assert torch.equal(our_text(model, cache), stock_text(model))


def test_no_text_is_wrong_whenever_it_dies(start_service: Start) -> None:
    """Killed at any moment of a generation with many evictions: each token follows from the kept tokens."""
    model = tiny_model()
    seen = []
    for seed in range(8):
        print(f"seed {seed}")
        service = start_service()
        killer = threading.Timer(random.Random(seed).uniform(0.0, 0.12), service.process.kill)
        with (
            kvtriage.connect(service.endpoint) as session,
            SidecarCache(model, session, 160, policy=SNAPKV, kept_tokens=24, every=2) as cache,
        ):
            evictions = Evictions()
            watch(cache, evictions)
            killer.start()
            try:
                with cache.attach(model):
                    text = model.generate(
                        tokens(50), past_key_values=cache, max_new_tokens=60, do_sample=False
                    )
                expected = reference_logits(model, text, evictions)[0].argmax(-1).tolist()
                assert text[0, 50:].tolist() == expected[49:-1]
                seen.append(f"{cache.evictions} made, {cache.evictions_missed} missed")
            except KvDamaged:
                cache.reset()
                assert torch.equal(plainly(model, cache), stock_text(model))
                seen.append("damaged")
            except ValueError as lost:
                # The ledger said that the eviction is complete; which rows it kept cannot be checked then.
                assert "answer to an eviction was lost" in str(lost)
                assert cache.physical_len == 24
                seen.append("moved, the answer lost")
            killer.join()
    print(seen)


def test_a_session_that_was_closed_first(start_service: Start) -> None:
    model = tiny_model()
    session = kvtriage.connect(start_service().endpoint)
    cache = SidecarCache(model, session, 96, policy=SNAPKV, kept_tokens=20, every=8)
    session.close()
    assert torch.equal(plainly(model, cache), stock_text(model))
    assert cache.evictions == 0 and cache.evictions_missed == 3
    cache.close()
