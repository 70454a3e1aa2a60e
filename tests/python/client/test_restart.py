"""The service goes away and comes back: the same handles work again, and nothing is thrown into the engine."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import kvtriage
import pytest
from kvtriage import Outcome
from stamped_worker import StampedWorker, streaming_rows
from waiting import wait_until

ROWS, KEPT = 100, 40
Start = Callable[..., kvtriage.PrivateService]


def kill(service: kvtriage.PrivateService, *sessions: kvtriage.Session) -> None:
    """Returns when the sessions have noticed."""
    service.process.kill()
    service.process.wait()
    assert wait_until(lambda: not any(session.alive for session in sessions), 2)


# https://github.com/LMCache/LMCache/issues/4642 https://github.com/LMCache/LMCache/pull/4687
# https://github.com/LMCache/LMCache/pull/3208
def test_is_noticed_and_the_same_handles_work_again(
    service: kvtriage.PrivateService, session: kvtriage.Session
) -> None:
    worker, second = StampedWorker(2, ROWS), StampedWorker(1, ROWS)
    worker.lend(session)
    second.lend(session)
    epoch = session.state.epoch
    kill(service, session)

    begin = time.monotonic()
    meanwhile = session.compress(worker.request([worker.sequence(0)], KEPT))
    assert time.monotonic() - begin < 0.5  # at once, on a busy machine
    assert meanwhile.outcome is Outcome.UNAVAILABLE
    assert meanwhile.error is not None and meanwhile.error.reason == "not_attached"
    assert [fate.outcome for fate in meanwhile.fates] == [Outcome.UNCHANGED]
    for call in (session.get_server_info, lambda: session.register(kvtriage.Registration())):
        with pytest.raises(kvtriage.KvtriageError) as refused:
            call()
        assert refused.value.code is kvtriage.Code.UNAVAILABLE

    service.start()
    assert session.wait_alive(2000), session.state.last_error
    assert session.state.epoch != epoch and session.state.attachments == 2
    outcome = session.compress(worker.request([worker.sequence(0), worker.sequence(1)], KEPT))
    assert outcome.outcome is Outcome.APPLIED, outcome.error
    assert worker.tokens(1, outcome.fates[1].table, KEPT) == streaming_rows(ROWS, KEPT)
    third = second.sequence(0)
    third.sequence_id = 3
    assert session.compress(second.request([third], KEPT)).outcome is Outcome.APPLIED


def test_what_was_taken_back_meanwhile_stays_taken_back(
    service: kvtriage.PrivateService, session: kvtriage.Session
) -> None:
    kept, gone = StampedWorker(1, ROWS), StampedWorker(1, ROWS)
    kept.lend(session)
    gone.lend(session)
    kill(service, session)
    session.unregister([gone.region])
    service.start()
    assert session.wait_alive(2000)
    assert [region.region for region in session.list_regions().regions] == [kept.region]


# https://github.com/grpc/grpc/issues/14014 https://github.com/grpc/grpc/issues/11411
# https://github.com/grpc/grpc/issues/35076
def test_two_clients_of_one_process_come_back_after_two_seconds(service: kvtriage.PrivateService) -> None:
    with kvtriage.connect(service.endpoint) as first, kvtriage.connect(service.endpoint) as second:
        lent = []
        for session in (first, second):
            worker = StampedWorker(1, ROWS)
            worker.lend(session)
            lent.append((session, worker))
        kill(service, first, second)
        down = time.monotonic()
        while time.monotonic() - down < 2:  # both go on calling
            for session, worker in lent:
                request = worker.request([worker.sequence(0)], KEPT)
                assert session.compress(request).outcome is Outcome.UNAVAILABLE
            time.sleep(0.02)
        service.start()
        for session, worker in lent:
            assert session.wait_alive(2000), session.state.last_error
            assert session.compress(worker.request([worker.sequence(0)], KEPT)).outcome is Outcome.APPLIED


def test_a_drain_ends_the_session_without_harm(
    service: kvtriage.PrivateService, session: kvtriage.Session
) -> None:
    worker = StampedWorker(1, ROWS)
    worker.lend(session)
    service.process.terminate()
    assert service.process.wait(10) == 0
    assert session.compress(worker.request([worker.sequence(0)], KEPT)).outcome is not Outcome.APPLIED
    assert worker.is_untouched(0)
    service.start()
    assert session.wait_alive(2000)
    assert session.compress(worker.request([worker.sequence(0)], KEPT)).outcome is Outcome.APPLIED


def stop(service: kvtriage.PrivateService) -> None:
    """Returns when every thread of it has stopped."""
    service.process.send_signal(signal.SIGSTOP)
    tasks = Path("/proc", str(service.process.pid), "task")
    assert wait_until(lambda: all(") T " in (task / "stat").read_text() for task in tasks.iterdir()))


def test_calls_to_a_stopped_service_end_by_their_deadline(start_service: Start) -> None:
    service = start_service()
    with kvtriage.connect(service.endpoint) as session:
        stop(service)
        begin = time.monotonic()
        with pytest.raises(kvtriage.KvtriageError) as late:
            session.get_server_info(kvtriage.CallOptions(deadline_ms=300))
        assert late.value.code is kvtriage.Code.DEADLINE_EXCEEDED
        assert time.monotonic() - begin < 1
        service.process.send_signal(signal.SIGCONT)
        assert session.get_server_info().epoch == session.state.epoch
