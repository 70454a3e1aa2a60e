"""The service dies in every phase of a job, and the client knows exactly what is true of every sequence."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import kvtriage
import pytest
from kvtriage import Outcome
from kvtriage._link.transport import Transport
from kvtriage.v1 import triage_pb2
from stamped_worker import StampedWorker, streaming_rows

ROWS, KEPT = 100, 40
Start = Callable[..., kvtriage.PrivateService]
U, A, D = Outcome.UNCHANGED, Outcome.APPLIED, Outcome.DAMAGED

# Two layers: two units per sequence, so the n-th passing of a unit's point says which one it is.
KILL_POINTS = [
    # The lane may take the job before the point is passed: it is held back.
    ("lane.job_start:delay=5000,admit.after_enqueue:kill", [U, U, U]),
    ("lane.job_start:kill", [U, U, U]),
    ("plan.after_pins:kill", [U, U, U]),
    ("lane.after_select:kill", [U, U, U]),
    ("ledger.after_free:kill", [U, U, U]),
    ("ledger.after_open:kill", [U, U, U]),
    ("ledger.after_counts:kill", [U, U, U]),
    ("ledger.after_moving:kill", [D, U, U]),
    ("move.mid_rows:kill", [D, U, U]),
    ("ledger.after_done:kill", [D, U, U]),
    ("ledger.after_done:kill:2", [A, U, U]),
    ("move.between_groups:kill", [A, U, U]),
    ("ledger.after_moving:kill:4", [A, D, U]),
    ("move.mid_rows:kill:3", [A, A, D]),
    ("ledger.after_done:kill:6", [A, A, A]),
    ("ledger.after_closed:kill", [A, A, A]),
    ("result.before_store:kill", [A, A, A]),
    ("result.after_store:kill", [A, A, A]),
    ("rpc.before_finish:kill:2", [A, A, A]),  # the first is the registration
]


def expect_fates_are_true(worker: StampedWorker, fates: tuple[kvtriage.SequenceFate, ...], kept: int) -> None:
    for i, fate in enumerate(fates):
        assert fate.sequence_id == i + 1
        if fate.outcome is U:
            assert worker.is_untouched(i)
        if fate.outcome is A:
            assert (fate.kept, fate.kv_revision) == (kept, 1)
            assert worker.tokens(i, fate.table, kept) == streaming_rows(worker.rows, kept)


@pytest.mark.parametrize(("fault", "wanted"), KILL_POINTS, ids=[point for point, _ in KILL_POINTS])
def test_every_sequences_fate_is_true(start_service: Start, fault: str, wanted: list[Outcome]) -> None:
    service = start_service(f"--fault={fault}")
    with kvtriage.connect(service.endpoint) as session:
        worker = StampedWorker(3, ROWS)
        worker.lend(session)
        begin = time.monotonic()
        outcome = session.compress(worker.request([worker.sequence(i) for i in range(3)], KEPT))
        assert time.monotonic() - begin < 10
        assert service.process.wait(10) == -signal.SIGKILL
        assert outcome.error is not None and outcome.result is None
        assert outcome.quarantine == 0  # the process is gone: nothing writes any more
        assert [fate.outcome for fate in outcome.fates] == wanted
        expect_fates_are_true(worker, outcome.fates, KEPT)
        assert outcome.outcome is (D if D in wanted else A if A in wanted else U)
        assert len(outcome.damaged) == wanted.count(D)


def test_no_fate_is_wrong_whenever_it_dies(start_service: Start) -> None:
    sequences, rows = 6, 2000
    seen = []
    for seed in range(10):
        print(f"seed {seed}")
        service = start_service()
        with kvtriage.connect(service.endpoint) as session:
            worker = StampedWorker(sequences, rows)
            worker.lend(session)
            request = worker.request([worker.sequence(i) for i in range(sequences)], rows // 2)
            pause = random.Random(seed).uniform(0, 0.004)
            killer = threading.Timer(pause, service.process.kill)
            killer.start()
            outcome = session.compress(request)
            killer.join()
            expect_fates_are_true(worker, outcome.fates, rows // 2)
            seen.append(outcome.outcome)
        service.close()
    print(seen)


def test_a_copy_leaves_the_source_valid(start_service: Start) -> None:
    service = start_service("--fault=copy.mid_rows:kill")
    with kvtriage.connect(service.endpoint) as session:
        worker = StampedWorker(2, ROWS)
        worker.lend(session)
        sequence = worker.sequence(0)
        sequence.destination = worker.table(1)
        request = worker.request([sequence], KEPT)
        request.act = kvtriage.CopyTo(worker.cache)
        outcome = session.compress(request)
        assert (outcome.outcome, outcome.quarantine) == (U, 0)
        assert worker.is_untouched(0)


def test_a_stopped_service_costs_bounded_time_and_quarantines(start_service: Start) -> None:
    service = start_service("--fault=move.mid_rows:delay=60000")
    with kvtriage.connect(service.endpoint, settle_ms=1000) as session:
        worker = StampedWorker(2, ROWS)
        worker.lend(session)
        request = worker.request([worker.sequence(0)], KEPT)
        stopper = threading.Timer(0.2, service.process.send_signal, [signal.SIGSTOP])
        stopper.start()
        begin = time.monotonic()
        outcome = session.compress(request, kvtriage.CallOptions(deadline_ms=1000))
        took = time.monotonic() - begin
        assert took < 4, took
        stopper.join()
        assert outcome.outcome is D and outcome.damaged == [1]
        assert outcome.quarantine != 0 and not session.quiet(outcome.quarantine)
        service.process.kill()
        service.process.wait()
        assert session.quiet(outcome.quarantine)
        assert session.quiet(outcome.quarantine)  # and stays so


def test_a_deadline_is_settled_not_guessed(start_service: Start) -> None:
    """The job goes on after the call's deadline; the client asks what became of it and gets the answer."""
    service = start_service("--fault=move.mid_rows:delay=700:1")
    with kvtriage.connect(service.endpoint) as session:
        worker = StampedWorker(1, ROWS)
        worker.lend(session)
        request = worker.request([worker.sequence(0)], KEPT)
        outcome = session.compress(request, kvtriage.CallOptions(deadline_ms=300))
        assert outcome.outcome is A and outcome.error is None
        assert outcome.result is not None and outcome.result.replayed
        assert worker.tokens(0, outcome.fates[0].table, KEPT) == streaming_rows(ROWS, KEPT)


def test_a_deadline_before_the_job_begins_leaves_the_rows_alone(start_service: Start) -> None:
    service = start_service("--fault=lane.job_start:delay=700:1")
    with kvtriage.connect(service.endpoint) as session:
        worker = StampedWorker(1, ROWS)
        worker.lend(session)
        request = worker.request([worker.sequence(0)], KEPT)
        outcome = session.compress(request, kvtriage.CallOptions(deadline_ms=200))
        assert outcome.outcome is U and outcome.error is not None
        assert worker.is_untouched(0)
        # The key is dead: nothing of that call comes later. Its successor is the first to move anything.
        assert session.compress(worker.request([worker.sequence(0)], KEPT)).outcome is A


def test_an_interrupted_call_does_not_run_on(start_service: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of a signal handler passes through once the job is over, and no ledger slot is lost."""
    service = start_service("--fault=lane.job_start:delay=100")
    with kvtriage.connect(service.endpoint) as session:
        worker = StampedWorker(1, ROWS)
        worker.lend(session)
        real_call = Transport.call
        sent: list[threading.Thread] = []

        def call(self: Transport, request: Any, answer: Any, deadline: float) -> Any:
            if isinstance(request, triage_pb2.CompressRequest) and not request.header.resolve:
                copy = triage_pb2.CompressRequest.FromString(request.SerializeToString())
                sent.append(
                    threading.Thread(target=ignoring_errors(real_call), args=(self, copy, answer, deadline))
                )
                sent[-1].start()
                raise KeyboardInterrupt
            return real_call(self, request, answer, deadline)

        monkeypatch.setattr(Transport, "call", call)
        for _ in range(5):  # more than there are slots
            with pytest.raises(KeyboardInterrupt):
                session.compress(worker.request([worker.sequence(0)], KEPT))
            rows_after = worker.cells.copy()
            sent[-1].join()
            assert (worker.cells == rows_after).all()


def ignoring_errors(call: Callable[..., Any]) -> Callable[..., None]:
    def run(*args: Any) -> None:
        with contextlib.suppress(kvtriage.KvtriageError):
            call(*args)

    return run


def test_an_answer_that_cannot_be_read_was_applied_all_the_same(
    session: kvtriage.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger has the lengths; and a request that makes no sense costs no ledger slot."""
    worker = StampedWorker(2, ROWS)
    worker.lend(session)
    real_call = Transport.call

    def call(self: Transport, request: Any, answer: Any, deadline: float) -> Any:
        response = real_call(self, request, answer, deadline)
        if isinstance(response, triage_pb2.CompressResponse):
            response.results[0].kept_sets.granularity = 99
        return response

    monkeypatch.setattr(Transport, "call", call)
    outcome = session.compress(worker.request([worker.sequence(0)], KEPT))
    assert outcome.outcome is A and outcome.result is None
    assert outcome.error is not None and outcome.error.reason == "bad_answer"
    assert outcome.fates[0].kept_rows.tolist() == [KEPT] * 4
    expect_fates_are_true(worker, outcome.fates, KEPT)
    monkeypatch.undo()

    nonsense = worker.request([worker.sequence(1)], KEPT)
    nonsense.inputs = None  # type: ignore[assignment]
    for _ in range(5):  # more than there are slots
        with pytest.raises(AttributeError):
            session.compress(nonsense)
    assert session.compress(worker.request([worker.sequence(1)], KEPT)).outcome is A
