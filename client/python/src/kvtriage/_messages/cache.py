"""Descriptions of memory as messages."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from kvtriage._link.memory_ids import MemoryIds
from kvtriage._messages.build import build
from kvtriage.cache_description import (
    CacheSpec,
    LayerSpec,
    LinearScaling,
    Llama3Scaling,
    OtherScaling,
    RegionSpec,
    RopeSpec,
    TensorSpec,
    ThetaSpeeds,
    ViewSpec,
    YarnScaling,
)
from kvtriage.v1 import memory_pb2, types_pb2


def view_message(view: ViewSpec, ids: MemoryIds) -> types_pb2.View:
    opaque = view.opaque_row_bytes > 0
    return build(
        types_pb2.View,
        region_id=ids.of_region(view.region),
        offset=view.offset,
        block_stride=view.block_stride,
        head_stride=view.head_stride,
        slot_stride=view.slot_stride,
        elem_stride=view.elem_stride,
        num_blocks=view.num_blocks,
        block_slots=view.block_slots,
        heads=view.heads,
        row_elems=view.row_elems,
        dtype=None if opaque else view.dtype,
        opaque_row_bytes=view.opaque_row_bytes if opaque else None,
        scale=_scale_message(view, ids),
    )


def _scale_message(view: ViewSpec, ids: MemoryIds) -> types_pb2.Scale | None:
    rows = view.row_scales
    if rows is None:
        return None if view.scale == 1.0 else build(types_pb2.Scale, constant=view.scale)
    per_row = build(
        types_pb2.ScaleView,
        region_id=ids.of_region(rows.region),
        offset=rows.offset,
        block_stride=rows.block_stride,
        head_stride=rows.head_stride,
        slot_stride=rows.slot_stride,
    )
    return types_pb2.Scale(per_row=per_row)


def tensor_message(tensor: TensorSpec | None, ids: MemoryIds) -> types_pb2.Tensor | None:
    """None stays None: an absent field."""
    if tensor is None:
        return None
    return build(
        types_pb2.Tensor,
        region_id=ids.of_region(tensor.region),
        offset=tensor.offset,
        dtype=tensor.dtype,
        layers=tensor.layers,
        rows=tensor.rows,
        heads=tensor.heads,
        elems=tensor.elems,
        layer_stride=tensor.layer_stride,
        row_stride=tensor.row_stride,
        head_stride=tensor.head_stride,
        elem_stride=tensor.elem_stride,
    )


def _theta_message(speeds: ThetaSpeeds) -> types_pb2.RopeSpec.ThetaSpeeds:
    kinds = types_pb2.RopeSpec
    scaling = speeds.scaling
    chosen: dict[str, Any] = {}
    if isinstance(scaling, LinearScaling):
        chosen["linear"] = build(kinds.Linear, factor=scaling.factor)
    elif isinstance(scaling, Llama3Scaling):
        chosen["llama3"] = build(
            kinds.Llama3,
            factor=scaling.factor,
            low=scaling.low,
            high=scaling.high,
            original_length=scaling.original_length,
        )
    elif isinstance(scaling, YarnScaling):
        chosen["yarn"] = build(
            kinds.Yarn,
            factor=scaling.factor,
            beta_fast=scaling.beta_fast,
            beta_slow=scaling.beta_slow,
            original_length=scaling.original_length,
        )
    elif isinstance(scaling, OtherScaling):
        chosen["other"] = scaling.kind
    return build(kinds.ThetaSpeeds, theta=speeds.theta, **chosen)


def _rope_message(rope: RopeSpec) -> types_pb2.RopeSpec:
    speeds: dict[str, Any] = {}
    if isinstance(rope.speeds, ThetaSpeeds):
        speeds["theta"] = _theta_message(rope.speeds)
    elif rope.speeds is not None:
        speeds["speeds_f64le"] = np.asarray(rope.speeds, "<f8").tobytes()
    return build(
        types_pb2.RopeSpec,
        pairing=rope.pairing,
        rotary_dim=rope.rotary_dim,
        rotary_offset=rope.rotary_offset,
        attention_factor=rope.attention_factor,
        mrope_sections=list(rope.mrope_sections),
        **speeds,
    )


def _layer_message(layer: LayerSpec, ids: MemoryIds) -> types_pb2.LayerSpec:
    value: dict[str, Any] = {"v_elems": layer.v.row_elems}
    if layer.v_in_k is None:
        value["v"] = view_message(layer.v, ids)
    else:
        value = {"v_in_k_first_elem": layer.v_in_k.first, "v_elems": layer.v_in_k.elems}
    return build(
        types_pb2.LayerSpec,
        layer_index=layer.layer_index,
        kind=layer.kind,
        q_heads=layer.q_heads,
        kv_heads=layer.kv_heads,
        k=view_message(layer.k, ids),
        companions=[view_message(companion, ids) for companion in layer.companions],
        sliding_window=layer.sliding_window,
        rope_index=layer.rope_index,
        position_aware=layer.position_aware,
        **value,
    )


def cache_message(cache: CacheSpec, ids: MemoryIds) -> types_pb2.CacheSpec:
    return build(
        types_pb2.CacheSpec,
        layers=[_layer_message(layer, ids) for layer in cache.layers],
        ropes=[_rope_message(rope) for rope in cache.ropes],
        num_layers=cache.num_layers,
    )


def region_message(region: RegionSpec, ticket: int, with_fingerprint: bool) -> memory_pb2.RegionSpec:
    """`ticket` stands for the descriptor of host memory; device memory needs none."""
    kinds = memory_pb2.RegionSpec
    source: dict[str, Any] = {}
    if region.cuda is None:
        source["host"] = build(kinds.HostMemfd, ticket=ticket, offset=region.offset)
    else:
        source["cuda_ipc"] = build(
            kinds.CudaIpc,
            handle=region.cuda.handle,
            device_uuid=region.cuda.device_uuid,
            base_offset=region.offset,
            allocation_bytes=region.cuda.bytes,
            exporter_pid=os.getpid(),
            generation=region.cuda.generation,
        )
    if with_fingerprint and region.fingerprint is not None:
        expected = region.fingerprint
        source["fingerprint"] = build(kinds.Fingerprint, offset=expected.offset, expected=expected.expected)
    return build(kinds, size=region.size, access=region.access, tag=region.tag, **source)
