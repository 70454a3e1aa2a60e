"""SelectRecompute as messages."""

from __future__ import annotations

from typing import Any

from kvtriage._link.memory_ids import MemoryIds
from kvtriage._messages.bad_answer import malformed
from kvtriage._messages.build import bits, build, int32_array, int32_bytes
from kvtriage._messages.cache import tensor_message
from kvtriage._messages.compress import timing_of
from kvtriage._messages.sequence import array_message, group_message, positions_message
from kvtriage.errors import bad_argument
from kvtriage.recompute import DenseRows, RecomputeRequest, RecomputeResult, RowSource
from kvtriage.v1 import blend_pb2


def _source_message(source: RowSource, ids: MemoryIds, name: str) -> blend_pb2.RowSource:
    if isinstance(source, DenseRows):
        tensor = tensor_message(source.tensor, ids)
        return build(blend_pb2.RowSource, tensor=tensor, first_row=source.first_row)
    paged = build(
        blend_pb2.RowSource.PagedRows,
        cache_id=ids.of_cache(source.cache),
        layer=source.layer,
        values=source.values,
        table=array_message(source.table, f"{name}.paged.table"),
        first_slot=source.first_slot,
    )
    return blend_pb2.RowSource(paged=paged)


def recompute_message(request: RecomputeRequest, ids: MemoryIds) -> blend_pb2.SelectRecomputeRequest:
    if request.ratio is not None and request.threshold is not None:
        raise bad_argument("an amount is a ratio or a threshold, not both", "ratio")
    kinds = blend_pb2.SelectRecomputeRequest
    optional: dict[str, Any] = {}
    if request.previous is not None:
        hkvd = int32_bytes(request.previous.hkvd, "previous.hkvd")
        optional["previous"] = build(kinds.Previous, hkvd_le=hkvd, base=request.previous.base)
    if request.gather is not None:
        optional["gather"] = build(
            kinds.QueryGather,
            to=tensor_message(request.gather.to, ids),
            **{"from": _source_message(request.gather.from_, ids, "gather.from")},
        )
    return build(
        kinds,
        fresh=_source_message(request.fresh, ids, "fresh"),
        cached=_source_message(request.cached, ids, "cached"),
        rows=request.rows,
        prefix=request.prefix,
        cached_bitmap=request.cached_bitmap,
        suffix=request.suffix,
        must_le=int32_bytes(request.must, "must"),
        no_logits=request.no_logits,
        metric=request.metric,
        ratio=request.ratio,
        threshold=request.threshold,
        positions=positions_message(request.positions, "positions"),
        group=group_message(request.group),
        **optional,
    )


def recompute_result_of(response: blend_pb2.SelectRecomputeResponse) -> RecomputeResult:
    """INTERNAL (bad_answer) when its parts do not agree."""
    rows, limits = int32_array(response.rows_le), int32_array(response.limits_le)
    if rows is None or limits is None or not len(rows) == len(limits) == response.must + response.hkvd:
        raise malformed("rows, limits and counts do not agree")
    return RecomputeResult(
        job_id=response.header.job_id,
        replayed=response.header.replayed,
        timing=timing_of(response.header.timing),
        rows=rows,
        limits=limits,
        is_must=bits(response.is_must_bitmap, len(rows)),
        must=response.must,
        hkvd=response.hkvd,
        base=response.base,
        gap=response.gap,
        nonfinite_rows=response.nonfinite_rows,
        divergence_share=response.divergence_share,
    )
