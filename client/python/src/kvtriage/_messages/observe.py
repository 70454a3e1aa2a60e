"""Observe and Rewind as messages."""

from __future__ import annotations

from typing import Any

from kvtriage._link.memory_ids import MemoryIds
from kvtriage._messages.bad_answer import malformed
from kvtriage._messages.build import build
from kvtriage._messages.compress import (
    act_message,
    inputs_message,
    output_message,
    sequence_result_of,
    timing_of,
)
from kvtriage._messages.policy import parts_of, policy_message
from kvtriage._messages.sequence import sequence_message
from kvtriage.observe import (
    ObserveRequest,
    ObserveResult,
    ObserveStep,
    ObserveStepResult,
    RewindRequest,
)
from kvtriage.v1 import triage_pb2


def may_evict(request: ObserveRequest) -> bool:
    return any(step.may_evict for step in request.steps)


def _step_message(step: ObserveStep, number: int) -> triage_pb2.ObserveRequest.SequenceStep:
    sequence = sequence_message(step.sequence, f"steps[{number}].sequence")
    if not step.may_evict:
        sequence.ClearField("destination")  # only a sequence that can be copied has a place to go
    return build(
        triage_pb2.ObserveRequest.SequenceStep,
        sequence=sequence,
        draft_rows=step.draft_rows,
        trigger=step.trigger,
        accumulate_only=step.accumulate_only,
    )


def observe_message(request: ObserveRequest, ledger_slot: int, ids: MemoryIds) -> triage_pb2.ObserveRequest:
    cutting: dict[str, Any] = {}
    if may_evict(request):
        cutting["act"] = act_message(request.act, request.renumber, ledger_slot, ids)
        cutting["output"] = output_message(request.lengths, request.kept_format)
    return build(
        triage_pb2.ObserveRequest,
        cache_id=ids.of_cache(request.cache),
        policy=None if request.policy is None else policy_message(request.policy),
        steps=[_step_message(step, number) for number, step in enumerate(request.steps)],
        inputs=inputs_message(request.inputs, ids),
        **cutting,
    )


def observe_result_of(
    response: triage_pb2.ObserveResponse, request: ObserveRequest, heads: tuple[int, ...]
) -> ObserveResult:
    """INTERNAL (bad_answer) when the answer does not fit the request."""
    if len(response.steps) != len(request.steps):
        raise malformed("another number of results than steps")
    steps = []
    for message, step in zip(response.steps, request.steps):
        if message.sequence_id != step.sequence.sequence_id:
            raise malformed("results are of other steps")
        evicted = None
        if message.evicted:
            evicted = sequence_result_of(
                message.result, step.sequence, request.act, request.kept_format, heads
            )
        steps.append(ObserveStepResult(message.sequence_id, evicted, message.draft_rows, message.started))
    return ObserveResult(
        job_id=response.header.job_id,
        replayed=response.header.replayed,
        timing=timing_of(response.header.timing),
        policy=parts_of(response.policy),
        steps=tuple(steps),
    )


def rewind_message(request: RewindRequest) -> triage_pb2.RewindRequest:
    return build(
        triage_pb2.RewindRequest,
        sequence_id=request.sequence_id,
        generation=request.generation,
        rows=request.rows,
    )
