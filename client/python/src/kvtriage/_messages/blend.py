"""Rerotate and Fuse as messages."""

from __future__ import annotations

from kvtriage._link.memory_ids import MemoryIds
from kvtriage._messages.build import build, int32_bytes
from kvtriage._messages.cache import tensor_message
from kvtriage._messages.compress import act_message
from kvtriage._messages.sequence import positions_message, sequence_message
from kvtriage.blend import FuseRequest, RerotateRequest
from kvtriage.v1 import blend_pb2


def rerotate_message(request: RerotateRequest, ledger_slot: int, ids: MemoryIds) -> blend_pb2.RerotateRequest:
    return build(
        blend_pb2.RerotateRequest,
        cache_id=ids.of_cache(request.cache),
        layers_le=int32_bytes(request.layers, "layers"),
        sequence=sequence_message(request.sequence, "sequence"),
        first_row=request.first_row,
        rows=request.rows,
        new_positions=positions_message(request.new_positions, "new_positions"),
        angles=request.angles,
        act=act_message(request.act, None, ledger_slot, ids),
    )


def fuse_message(request: FuseRequest, ledger_slot: int, ids: MemoryIds) -> blend_pb2.FuseRequest:
    kinds = blend_pb2.FuseRequest
    partial = request.rows is not None
    return build(
        kinds,
        cache_id=ids.of_cache(request.cache),
        layers_le=int32_bytes(request.layers, "layers"),
        sequence=sequence_message(request.sequence, "sequence"),
        rows_le=int32_bytes(request.rows, "rows") if request.rows is not None else b"",
        keys=tensor_message(request.keys, ids),
        values=tensor_message(request.values, ids),
        write_back=kinds.WRITE_BACK_PARTIAL if partial else kinds.WRITE_BACK_FULL,
        in_place=build(kinds.InPlaceSlot, ledger_slot=ledger_slot),
    )
