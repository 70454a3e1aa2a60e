"""compress: what is kept, what is moved, what is answered."""

from __future__ import annotations

from collections.abc import Callable

import kvtriage
import numpy as np
import pytest
from stamped_worker import BLOCK_SLOTS, HEADS, LAYERS, StampedWorker, streaming_rows

ROWS, KEPT = 100, 40


@pytest.fixture
def worker(session: kvtriage.Session) -> StampedWorker:
    worker = StampedWorker(2, ROWS)
    worker.lend(session)
    return worker


def test_in_place_moves_the_kept_rows_and_cuts_the_table(
    session: kvtriage.Session, worker: StampedWorker
) -> None:
    outcome = session.compress(worker.request([worker.sequence(0)], KEPT))
    assert outcome.outcome is kvtriage.Outcome.APPLIED and outcome.error is None
    result = outcome.one_result()
    wanted = streaming_rows(ROWS, KEPT)
    assert (result.kept, result.dropped, result.total_dropped) == (KEPT, ROWS - KEPT, ROWS - KEPT)
    assert (result.logical_len, result.next_position, result.kv_revision) == (ROWS, ROWS, 1)
    assert result.table.tolist() == worker.table(0)[: -(-KEPT // BLOCK_SLOTS)]
    assert result.rewritten.tolist() == list(range(len(result.table)))
    for layer in range(LAYERS):
        for head in range(HEADS):
            kept = result.kept_sets.at(layer, head)
            assert kept.dtype == np.int32 and kept.tolist() == wanted
    assert result.kept_sets.one_length() == KEPT
    assert worker.tokens(0, result.table, KEPT) == wanted
    assert worker.is_untouched(1)
    fate = outcome.fates[0]
    assert (fate.sequence_id, fate.kept, fate.kv_revision) == (1, KEPT, 1)
    assert fate.table.tolist() == result.table.tolist()


def test_select_only_and_copy_leave_the_source_alone(
    session: kvtriage.Session, worker: StampedWorker
) -> None:
    request = worker.request([worker.sequence(0)], KEPT)
    request.act = kvtriage.SelectOnly()
    selected = session.compress(request).one_result()
    assert worker.is_untouched(0) and selected.table.tolist() == worker.table(0)

    sequence = worker.sequence(0)
    sequence.destination = np.array(worker.table(1), np.int32)
    request = worker.request([sequence], KEPT)
    request.act = kvtriage.CopyTo(worker.cache)
    copied = session.compress(request).one_result()
    assert worker.is_untouched(0)
    assert worker.tokens(0, copied.table, KEPT) == streaming_rows(ROWS, KEPT)
    assert copied.kept_sets.indices.tolist() == selected.kept_sets.indices.tolist()


def test_the_kept_sets_are_views_of_the_answer(session: kvtriage.Session, worker: StampedWorker) -> None:
    kept = session.compress(worker.request([worker.sequence(0)], KEPT)).one_result().kept_sets
    assert not kept.indices.flags.owndata and not kept.indices.flags.writeable
    assert all(rows.base is not None for rows in kept.lists)
    with pytest.raises(IndexError):
        kept.at(0, HEADS)


# https://github.com/huggingface/transformers/issues/35168
def test_one_length_for_all_layers_is_said_or_refused(
    session: kvtriage.Session, worker: StampedWorker
) -> None:
    request = worker.request([worker.sequence(0)], KEPT)
    request.act = kvtriage.SelectOnly()
    parts = kvtriage.PolicyParts(budget=kvtriage.Budget(explicit_layers=[16, 8]))
    request.policy = kvtriage.Policy("streaming", parts)
    for lengths in (kvtriage.LengthRule.ANY, kvtriage.LengthRule.PER_LAYER):
        request.lengths = lengths
        kept = session.compress(request).one_result().kept_sets
        assert [len(rows) for rows in kept.lists] == [16, 16, 8, 8]
        with pytest.raises(ValueError, match="8 to 16 rows"):
            kept.one_length()
    request.lengths = kvtriage.LengthRule.ONE
    error = session.compress(request).error
    assert error is not None and error.reason == "lengths_unequal"


def test_a_policy_may_be_a_plain_name(
    start_service: Callable[..., kvtriage.PrivateService],
) -> None:
    service = start_service("--policy.kept_ratio=0.25")
    with kvtriage.connect(service.endpoint) as session:
        worker = StampedWorker(1, ROWS)
        worker.lend(session)
        request = worker.request([worker.sequence(0)], KEPT)
        request.policy = "streaming"
        outcome = session.compress(request)
        assert outcome.one_result().kept == 25
        assert outcome.result is not None
        assert outcome.result.policy.scorer == kvtriage.Scorer(kvtriage.ScorerKind.RECENCY)
        assert outcome.result.policy.budget is not None
        assert outcome.result.policy.budget.kept_ratio == 0.25


def test_the_service_says_what_it_knows(session: kvtriage.Session) -> None:
    info = session.get_server_info()
    assert info.epoch == session.state.epoch and not info.draining
    assert info.limits.max_request_bytes == 256 << 10
    assert info.devices[0].kind == "cpu"
    snapkv = next(policy for policy in info.policies if policy.name == "snapkv")
    assert snapkv.parts.scorer == kvtriage.Scorer(kvtriage.ScorerKind.ATTENTION)
    assert snapkv.parts.window is not None and snapkv.parts.window.last > 0
