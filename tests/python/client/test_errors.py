"""Errors say which field, what was got and what would have been right, and never harm the cache."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import kvtriage
import numpy as np
import pytest
from kvtriage import Code, Outcome
from kvtriage._link.retry import with_retry
from stamped_worker import StampedWorker

ROWS, KEPT = 100, 40


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("table", [0.5], "sequences[0].table"),
        ("table", [1 << 40], "sequences[0].table"),
        ("table", np.zeros((2, 2), np.int32), "sequences[0].table"),
        ("physical_len", -3, "sequences[0].physical_len"),
        ("kv_revision", 1 << 40, "sequences[0].kv_revision"),
        ("sequence_id", "seven", "sequences[0].sequence_id"),
        ("shared_bitmap", "text\udc80", "sequences[0].shared_bitmap"),
    ],
)
def test_what_cannot_be_sent_names_its_field(
    session: kvtriage.Session, field: str, value: Any, wanted: str
) -> None:
    worker = StampedWorker(1, ROWS)
    worker.lend(session)
    sequence = worker.sequence(0)
    setattr(sequence, field, value)
    outcome = session.compress(worker.request([sequence], KEPT))
    assert outcome.outcome is Outcome.UNCHANGED and outcome.error is not None
    assert (outcome.error.code, outcome.error.reason) == (Code.INVALID_ARGUMENT, "bad_argument")
    assert outcome.error.field == wanted and wanted in str(outcome.error)
    assert worker.is_untouched(0)


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("act", kvtriage.InPlace, "act"),  # the class: not an in-place call, and no other one either
        ("act", None, "act"),
        ("inputs", kvtriage.ScoreInputs(source=kvtriage.KeysOnly), "inputs.source"),
    ],
)
def test_no_act_and_no_source_is_taken_for_another(
    session: kvtriage.Session, field: str, value: Any, wanted: str
) -> None:
    worker = StampedWorker(1, ROWS)
    worker.lend(session)
    request = worker.request([worker.sequence(0)], KEPT)
    setattr(request, field, value)
    outcome = session.compress(request)
    assert outcome.outcome is Outcome.UNCHANGED and outcome.error is not None
    assert (outcome.error.reason, outcome.error.field) == ("bad_argument", wanted)
    assert worker.is_untouched(0)


def test_what_the_service_refuses_names_field_and_numbers(session: kvtriage.Session) -> None:
    worker = StampedWorker(1, ROWS)
    worker.lend(session)
    sequence = worker.sequence(0)
    sequence.table = worker.table(0)[:3]
    error = session.compress(worker.request([sequence], KEPT)).error
    assert error is not None and error.from_service and error.unharmed
    assert (error.reason, error.field, error.got, error.limit) == (
        "table_too_short",
        "sequences[0].table",
        3,
        7,
    )
    assert error.server_epoch == session.state.epoch


def test_two_amounts_are_one_too_many(session: kvtriage.Session) -> None:
    worker = StampedWorker(1, ROWS)
    worker.lend(session)
    request = worker.request([worker.sequence(0)], KEPT)
    budget = kvtriage.Budget(kept_tokens=1, kept_ratio=0.5)
    request.policy = kvtriage.Policy("streaming", kvtriage.PolicyParts(budget=budget))
    outcome = session.compress(request)
    assert outcome.outcome is Outcome.UNCHANGED
    assert outcome.error is not None and outcome.error.field == "policy.parts.budget"


def test_too_large_a_request_is_refused_with_the_limit(session: kvtriage.Session) -> None:
    worker = StampedWorker(1, ROWS)
    worker.lend(session)
    sequence = worker.sequence(0)
    sequence.table = np.zeros(1 << 17, np.int32)
    error = session.compress(worker.request([sequence], KEPT)).error
    assert error is not None and error.reason == "request_too_large"
    assert error.limit == 256 << 10 and error.got > error.limit
    assert worker.is_untouched(0)


# https://github.com/LMCache/LMCache/issues/4608
def test_one_bad_region_of_many_is_named_and_nothing_stays(session: kvtriage.Session) -> None:
    memory = kvtriage.HostMemory(1 << 16)
    regions = [memory.lend(size=4096, tag=i) for i in range(32)]
    regions[17] = memory.lend(offset=100, size=4096)
    with pytest.raises(kvtriage.KvtriageError) as refused:
        session.register(kvtriage.Registration(regions))
    assert refused.value.field.startswith("regions[17]")
    assert session.list_regions().regions == ()
    with pytest.raises(kvtriage.KvtriageError) as refused:
        session.register(kvtriage.Registration(regions * 2))
    assert refused.value.reason == "bad_argument"


# https://github.com/kvcache-ai/Mooncake/issues/2832 https://github.com/openucx/ucx/pull/2738
def test_another_sessions_handles_mean_nothing(service: kvtriage.PrivateService) -> None:
    with kvtriage.connect(service.endpoint) as first, kvtriage.connect(service.endpoint) as second:
        worker = StampedWorker(1, ROWS)
        worker.lend(first)
        with pytest.raises(kvtriage.KvtriageError) as refused:
            second.checksum(worker.region, 0, 64)
        assert (refused.value.code, refused.value.reason) == (Code.NOT_FOUND, "memory_unknown")
        outcome = second.compress(worker.request([worker.sequence(0)], KEPT))
        assert outcome.outcome is Outcome.UNCHANGED
        assert outcome.error is not None and outcome.error.reason == "memory_unknown"


def test_connecting_says_what_is_wrong(tmp_path: Path, service: kvtriage.PrivateService) -> None:
    def reason(endpoint: str, **options: Any) -> str:
        with pytest.raises(kvtriage.KvtriageError) as refused:
            kvtriage.connect(endpoint, connect_ms=300, **options)
        return refused.value.reason

    assert reason(str(tmp_path / "nobody")) == "socket_missing"
    assert reason("x" * 200) == "bad_argument"
    assert reason("") == "bad_argument"
    assert reason(service.endpoint, client="not a client\n") == "field_invalid"
    short = os.path.join(service.directory, "other.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(short)
        other.listen()
        assert reason(f"unix://{short}") == "not_kvtriage"


def refusal(code: Code, unharmed: bool, retry_after_ms: int) -> kvtriage.KvtriageError:
    details: dict[str, Any] = {"unharmed": unharmed, "retry_after_ms": retry_after_ms}
    return kvtriage.KvtriageError(code, "queue_full", "", from_service=True, **details)


@pytest.mark.parametrize(
    ("error", "retry", "seconds", "tries"),
    [
        (refusal(Code.RESOURCE_EXHAUSTED, True, 1), True, 10.0, 4),
        (refusal(Code.UNAVAILABLE, True, 1), True, 10.0, 4),
        (refusal(Code.RESOURCE_EXHAUSTED, True, 1), False, 10.0, 1),  # the engine would rather go on
        (refusal(Code.RESOURCE_EXHAUSTED, True, 0), True, 10.0, 1),  # the same call will not do better
        (refusal(Code.RESOURCE_EXHAUSTED, True, 5000), True, 1.0, 1),  # the deadline comes first
        (refusal(Code.RESOURCE_EXHAUSTED, False, 1), True, 10.0, 1),  # not said to be unharmed
        (refusal(Code.ABORTED, True, 1), True, 10.0, 1),
        (kvtriage.KvtriageError(Code.UNAVAILABLE, "", ""), True, 10.0, 1),  # the connection broke
    ],
)
def test_only_safe_refusals_are_repeated(
    error: kvtriage.KvtriageError, retry: bool, seconds: float, tries: int
) -> None:
    made = []

    def call() -> None:
        made.append(1)
        raise error

    with pytest.raises(kvtriage.KvtriageError):
        with_retry(retry, time.monotonic() + seconds, call)
    assert len(made) == tries
