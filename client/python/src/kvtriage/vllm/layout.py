"""Where keys and values lie in vLLM's CPU cache, by formula, and the proof of it at every start.

A layer is a tensor [blocks, kv_heads, slots, 2 * dim], but that shape is only nominal. Inside one (block,
head) all keys come first, transposed ([dim, slots]), then all values ([slots, dim]). So the tensor's own
stride() is wrong, and the formulas here are compared with what vLLM's own writer stores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kvtriage import CacheSpec, DType, LayerKind, LayerSpec, Region, ViewSpec
from kvtriage.vllm.versions import UnsupportedEngine

DTYPES = {torch.float32: DType.F32, torch.float16: DType.F16, torch.bfloat16: DType.BF16}
_SENTINEL = -77.0  # exact in every dtype


@dataclass(frozen=True, slots=True)
class Layout:
    """Of one layer. Strides and offsets in elements: block, head, slot, element."""

    blocks: int
    heads: int
    slots: int
    dim: int

    @staticmethod
    def of(cache: torch.Tensor) -> Layout:
        """UnsupportedEngine for a tensor of another form."""
        shape = tuple(cache.shape)
        if len(shape) != 4 or shape[3] % 2 or not cache.is_contiguous() or cache.dtype not in DTYPES:
            raise UnsupportedEngine(f"kvtriage: unknown KV cache {cache.dtype} {shape} {cache.stride()}")
        return Layout(shape[0], shape[1], shape[2], shape[3] // 2)

    @property
    def block_elems(self) -> int:
        return self.heads * self.slots * 2 * self.dim

    @property
    def key_strides(self) -> tuple[int, int, int, int]:
        return self.block_elems, self.slots * 2 * self.dim, 1, self.slots

    @property
    def value_strides(self) -> tuple[int, int, int, int]:
        return self.block_elems, self.slots * 2 * self.dim, self.dim, 1

    @property
    def value_offset(self) -> int:
        return self.dim * self.slots

    def keys(self, cache: torch.Tensor) -> torch.Tensor:
        """View [blocks, heads, slots, dim] of a layer's tensor."""
        return self._view(cache, self.key_strides, 0)

    def values(self, cache: torch.Tensor) -> torch.Tensor:
        return self._view(cache, self.value_strides, self.value_offset)

    def _view(self, cache: torch.Tensor, strides: tuple[int, ...], offset: int) -> torch.Tensor:
        shape = (cache.shape[0], self.heads, self.slots, self.dim)
        return torch.as_strided(cache, shape, strides, cache.storage_offset() + offset)


def prove_layout(layout: Layout, attention: Any, dtype: torch.dtype) -> None:
    """vLLM's writer stores rows in a scratch cache; UnsupportedEngine if one element is not where we say.

    `attention`: a layer of the engine, with `impl.do_kv_cache_update`.
    """
    scratch = torch.full((3, layout.heads, layout.slots, 2 * layout.dim), _SENTINEL, dtype=dtype)
    # All of block 1 and a part of block 2, in an order of their own.
    slots = torch.arange(layout.slots, 2 * layout.slots + layout.slots // 2).flip(0)
    generator = torch.Generator().manual_seed(1)
    rows = [
        torch.randn((len(slots), layout.heads, layout.dim), generator=generator).to(dtype) for _ in range(2)
    ]
    attention.impl.do_kv_cache_update(attention, rows[0], rows[1], scratch, slots)
    block, slot = slots // layout.slots, slots % layout.slots
    for name, view, written in (
        ("keys", layout.keys(scratch), rows[0]),
        ("values", layout.values(scratch), rows[1]),
    ):
        expected = torch.full(view.shape, _SENTINEL, dtype=dtype)
        expected[block, :, slot] = written
        wrong = int((view != expected).sum())
        if wrong:
            raise UnsupportedEngine(
                f"kvtriage: unsupported layout: {wrong} of {expected.numel()} elements of {name} are not "
                f"where isa {attention.isa!r} with block size {layout.slots} should put them"
            )


def cache_spec(layout: Layout, dtype: torch.dtype, offsets: list[int], q_heads: int) -> CacheSpec:
    """All layers in region 0 of a registration; `offsets` are bytes."""
    size = dtype.itemsize

    def view(strides: tuple[int, int, int, int], offset: int) -> ViewSpec:
        block, head, slot, elem = (stride * size for stride in strides)
        return ViewSpec(
            region=Region.of_this_call(0),
            offset=offset,
            block_stride=block,
            head_stride=head,
            slot_stride=slot,
            elem_stride=elem,
            num_blocks=layout.blocks,
            block_slots=layout.slots,
            heads=layout.heads,
            row_elems=layout.dim,
            dtype=DTYPES[dtype],
        )

    layers = [
        LayerSpec(
            kind=LayerKind.FULL,
            layer_index=index,
            q_heads=q_heads,
            kv_heads=layout.heads,
            k=view(layout.key_strides, offset),
            v=view(layout.value_strides, offset + layout.value_offset * size),
        )
        for index, offset in enumerate(offsets)
    ]
    return CacheSpec(layers=layers, num_layers=len(layers))
