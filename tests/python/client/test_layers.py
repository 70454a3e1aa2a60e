"""open_layers: the layers of a compress handed over one by one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import kvtriage
import pytest
from kvtriage import Outcome
from stamped_worker import HEADS, StampedWorker, streaming_rows

ROWS, KEPT = 100, 40
Start = Callable[..., kvtriage.PrivateService]


def stamped(session: kvtriage.Session, sequences: int = 2) -> tuple[StampedWorker, kvtriage.CompressRequest]:
    worker = StampedWorker(sequences, ROWS)
    worker.lend(session)
    return worker, worker.request([worker.sequence(i) for i in range(sequences)], KEPT)


def test_gives_what_one_call_gives(session: kvtriage.Session) -> None:
    worker, request = stamped(session)
    selecting = worker.request(list(request.sequences), KEPT)
    selecting.act = kvtriage.SelectOnly()
    whole = session.compress(selecting).result
    assert whole is not None
    done: list[kvtriage.LayerResult] = []
    with session.open_layers(request) as stream:
        assert stream.policy.budget is not None
        # One thread computes and hands over, another takes what is done.
        reader = threading.Thread(target=lambda: done.extend(stream.next() for _ in range(2)))
        reader.start()
        for layer in (1, 0):
            stream.ready(layer)
        reader.join()
        outcome = stream.close()
    assert outcome.outcome is Outcome.APPLIED and outcome.result is not None, outcome.error
    assert [layer.layer for layer in done] == [1, 0]
    for i, (ours, theirs) in enumerate(zip(outcome.result.sequences, whole.sequences)):
        assert ours.kept_sets.indices.tolist() == theirs.kept_sets.indices.tolist()
        assert outcome.fates[i].table.tolist() == ours.table.tolist()
        assert worker.tokens(i, ours.table, KEPT) == streaming_rows(ROWS, KEPT)
        for layer in done:
            part = layer.result.sequences[i].kept_sets
            for head in range(HEADS):
                assert part.at(0, head).tolist() == theirs.kept_sets.at(layer.layer, head).tolist()


def test_layers_that_never_came_leave_their_sequences_damaged(session: kvtriage.Session) -> None:
    _, request = stamped(session)
    with session.open_layers(request) as stream:
        stream.ready(1)
        outcome = stream.close()
    assert outcome.outcome is Outcome.DAMAGED and outcome.damaged == [1, 2]
    assert outcome.error is not None and (outcome.error.reason, outcome.error.field) == (
        "field_missing",
        "layer",
    )


def test_leaving_the_stream_cancels_it_and_gives_the_slot_back(session: kvtriage.Session) -> None:
    worker, request = stamped(session)
    for _ in range(6):  # more than there are slots
        with session.open_layers(request):
            pass
        assert worker.is_untouched(0) and worker.is_untouched(1)
    assert session.compress(request).outcome is Outcome.APPLIED


def test_refusals_name_the_field_and_leave_the_cache_alone(session: kvtriage.Session) -> None:
    worker, request = stamped(session)
    request.sequences[1].table = [1_000_000, *worker.table(1)[1:]]
    with pytest.raises(kvtriage.KvtriageError) as refused:
        session.open_layers(request)
    assert (refused.value.reason, refused.value.field) == ("block_out_of_range", "open.sequences[1].table")
    assert worker.is_untouched(0)


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        ("ledger.after_moving:kill", [Outcome.DAMAGED, Outcome.UNCHANGED]),
        ("ledger.after_done:kill:2", [Outcome.DAMAGED, Outcome.DAMAGED]),  # layer 0 is done, layer 1 is not
        ("ledger.after_done:kill:4", [Outcome.APPLIED, Outcome.APPLIED]),
    ],
)
def test_a_killed_service_leaves_no_doubt(start_service: Start, fault: str, wanted: list[Outcome]) -> None:
    service = start_service(f"--fault={fault}")
    with kvtriage.connect(service.endpoint) as session:
        worker, request = stamped(session)
        with session.open_layers(request) as stream:
            stream.ready(0)
            try:
                stream.next()
                stream.ready(1)
            except kvtriage.KvtriageError:
                pass  # the stream is over: close says what is true
            outcome = stream.close()
        assert service.process.wait(10) == -signal.SIGKILL
        assert [fate.outcome for fate in outcome.fates] == wanted
        for i, fate in enumerate(outcome.fates):
            if fate.outcome is Outcome.UNCHANGED:
                assert worker.is_untouched(i)
            if fate.outcome is Outcome.APPLIED:
                assert worker.tokens(i, fate.table, KEPT) == streaming_rows(ROWS, KEPT)
