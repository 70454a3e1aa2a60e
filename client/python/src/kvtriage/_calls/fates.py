"""The fate of each sequence of a call, from its answer or from its ledger slot."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq

import numpy as np

from kvtriage._link.ledger import DONE, PENDING, UNHARMED, SlotReading, SlotState
from kvtriage._messages.sequence import table_of
from kvtriage.compress import Sequence
from kvtriage.compress_result import CompressResult, Outcome, SequenceFate, SequenceResult
from kvtriage.observe import ObserveResult, ObserveStep


def _fate_of_result(result: SequenceResult) -> SequenceFate:
    return SequenceFate(result.sequence_id, Outcome.APPLIED, result.kept, result.kv_revision, result.table)


def fates_of_answer(result: CompressResult) -> tuple[SequenceFate, ...]:
    return tuple(_fate_of_result(sequence) for sequence in result.sequences)


def fates_of_observed(result: ObserveResult, steps: Seq[ObserveStep]) -> tuple[SequenceFate, ...]:
    return tuple(
        _fate_of_result(answer.evicted) if answer.evicted is not None else _counted(step.sequence)
        for answer, step in zip(result.steps, steps)
    )


def _counted(sequence: Sequence) -> SequenceFate:
    """New rows count, none was dropped."""
    return SequenceFate(
        sequence.sequence_id,
        Outcome.APPLIED,
        sequence.physical_len,
        sequence.kv_revision,
        table_of(sequence.table),
    )


def fates_all(sequences: Iterable[Sequence], outcome: Outcome) -> tuple[SequenceFate, ...]:
    """Every sequence with the same outcome."""
    return tuple(SequenceFate(sequence.sequence_id, outcome) for sequence in sequences)


def step_fates_all(steps: Iterable[ObserveStep], outcome: Outcome) -> tuple[SequenceFate, ...]:
    """Every step that may evict with `outcome`, the others unchanged."""
    return tuple(
        SequenceFate(step.sequence.sequence_id, outcome if step.may_evict else Outcome.UNCHANGED)
        for step in steps
    )


def fates_of_slot(
    reading: SlotReading, sequences: Seq[Sequence], layers: int, block_slots: int
) -> tuple[SequenceFate, ...]:
    """Of an in-place call over `layers` layers of a cache with `block_slots` rows a block.

    A sequence whose units do not add up is damaged.
    """
    if reading.state is SlotState.UNTOUCHED:
        return fates_all(sequences, Outcome.UNCHANGED)
    if reading.state is not SlotState.SETTLED:
        return fates_all(sequences, Outcome.DAMAGED)
    return tuple(_fate_of_units(reading, sequence, layers, block_slots) for sequence in sequences)


def step_fates_of_slot(
    reading: SlotReading, steps: Seq[ObserveStep], layers: int, block_slots: int
) -> tuple[SequenceFate, ...]:
    """Of an observe, whose units are of the sequences that were cut back.

    To the others, and to those that could not be, the call never happened.
    """
    if reading.state is SlotState.UNTOUCHED:
        return step_fates_all(steps, Outcome.UNCHANGED)
    if reading.state is not SlotState.SETTLED:
        return step_fates_all(steps, Outcome.DAMAGED)
    return tuple(
        _fate_of_units(reading, step.sequence, layers, block_slots)
        if np.any(reading.sequence_ids == step.sequence.sequence_id)
        else SequenceFate(step.sequence.sequence_id)
        for step in steps
    )


def _fate_of_units(reading: SlotReading, sequence: Sequence, layers: int, block_slots: int) -> SequenceFate:
    mine = reading.sequence_ids == sequence.sequence_id
    states = reading.states[mine]
    damaged = SequenceFate(sequence.sequence_id, Outcome.DAMAGED)
    if len(states) != layers:
        return damaged
    if np.isin(states, (PENDING, UNHARMED)).all():
        return SequenceFate(sequence.sequence_id, Outcome.UNCHANGED)
    if not (states == DONE).all():
        return damaged
    counts = reading.counts[mine]
    kept = int(counts.max())
    blocks = -(-(sequence.first_slot + kept) // block_slots)
    if kept == 0 or kept > sequence.physical_len or blocks > len(sequence.table):
        return damaged
    return SequenceFate(
        sequence.sequence_id,
        Outcome.APPLIED,
        kept,
        sequence.kv_revision + 1,
        table_of(sequence.table)[:blocks],
        counts.astype(np.int32).ravel(),
    )


def outcome_of(fates: Iterable[SequenceFate]) -> Outcome:
    """Of the whole call: damaged before applied before unchanged."""
    outcomes = {fate.outcome for fate in fates}
    if Outcome.DAMAGED in outcomes:
        return Outcome.DAMAGED
    return Outcome.APPLIED if Outcome.APPLIED in outcomes else Outcome.UNCHANGED
