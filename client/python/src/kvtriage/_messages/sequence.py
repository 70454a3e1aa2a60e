"""Sequences, and what calls about them share, as messages."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from kvtriage._messages.build import build, int32_bytes
from kvtriage.compress import Ints, Positions, RowLists, Sequence
from kvtriage.errors import KvtriageError, bad_argument
from kvtriage.group import Group
from kvtriage.v1 import triage_pb2, types_pb2


def array_message(values: Ints, name: str) -> types_pb2.Int32Array:
    return types_pb2.Int32Array(inline_le=int32_bytes(values, name))


def positions_message(positions: Positions, name: str) -> types_pb2.Positions:
    try:
        first = operator.index(positions)  # type: ignore[arg-type]
    except TypeError:
        return types_pb2.Positions(list=array_message(positions, name))  # type: ignore[arg-type]
    return build(types_pb2.Positions, first_position=first)


def _rows_message(rows: RowLists) -> types_pb2.IndexLists:
    counts = [len(rows_of_one) for rows_of_one in rows.lists]
    indices = b"".join(int32_bytes(rows_of_one, "protect.lists") for rows_of_one in rows.lists)
    return build(
        types_pb2.IndexLists,
        granularity=rows.granularity,
        counts_le=int32_bytes(counts, "protect.lists"),
        indices_le=indices,
    )


def sequence_message(sequence: Sequence, path: str) -> types_pb2.SequenceSpec:
    """`path` is where it stands in the request, for errors: "sequences[3]"."""
    try:
        return _message(sequence)
    except KvtriageError as error:
        raise bad_argument(f"{path}: {error.message}", f"{path}.{error.field}") from error


def _message(sequence: Sequence) -> types_pb2.SequenceSpec:
    optional: dict[str, Any] = {}
    if len(sequence.destination) > 0:
        optional["destination"] = array_message(sequence.destination, "destination")
    if len(sequence.row_limits) > 0:
        optional["row_limits"] = array_message(sequence.row_limits, "row_limits")
    if sequence.protect is not None:
        optional["protect"] = _rows_message(sequence.protect)
    if sequence.positions is not None:
        optional["positions"] = positions_message(sequence.positions, "positions")
    return build(
        types_pb2.SequenceSpec,
        sequence_id=sequence.sequence_id,
        generation=sequence.generation,
        kv_revision=sequence.kv_revision,
        logical_len=sequence.logical_len,
        physical_len=sequence.physical_len,
        first_slot=sequence.first_slot,
        table=array_message(sequence.table, "table"),
        sharing=sequence.sharing,
        shared_blocks=sequence.shared_blocks,
        shared_bitmap=sequence.shared_bitmap,
        rows_begin=sequence.rows_begin,
        rows_count=sequence.rows_count,
        # More rows than tokens: the service refuses it.
        total_dropped=max(0, sequence.logical_len - sequence.physical_len),
        **optional,
    )


def table_of(values: Ints) -> np.ndarray[Any, np.dtype[np.int32]]:
    """A copy of a request's table: what the caller does to its own afterwards changes no answer."""
    return np.array(values, np.int32)


def group_message(group: Group | None) -> triage_pb2.Group | None:
    if group is None:
        return None
    return build(
        triage_pb2.Group,
        group_key=group.key,
        rank=group.rank,
        size=group.size,
        first_kv_head=group.first_kv_head,
        total_kv_heads=group.total_kv_heads,
    )
