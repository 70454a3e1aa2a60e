"""How lent memory is described: byte strides, never layout names.

These classes mirror the messages of proto/kvtriage/v1/types.proto; what they mean is said there and in
proto/README.md. All offsets, strides and sizes are bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Region:
    """Names memory that was registered through this session.

    It stays the same when the session attaches anew behind the caller's back; the server's own id does
    not. Owns nothing.
    """

    handle: int = 0  # 0: none

    @staticmethod
    def of_this_call(index: int) -> Region:
        """Inside Registration.caches: region `index` (from 0) of that same call."""
        return Region(index + 1)


@dataclass(frozen=True, slots=True)
class Cache:
    """Names a registered CacheSpec, in the same way."""

    handle: int = 0  # 0: none


class DType(enum.IntEnum):
    """Element types that can be scored."""

    UNSPECIFIED = 0
    F32 = 1
    F16 = 2
    BF16 = 3
    F8E4M3 = 4
    F8E5M2 = 5


_BYTES = {DType.F32: 4, DType.F16: 2, DType.BF16: 2, DType.F8E4M3: 1, DType.F8E5M2: 1}


def bytes_of(dtype: DType) -> int:
    """Bytes of one element; 0 for UNSPECIFIED."""
    return _BYTES.get(dtype, 0)


@dataclass(frozen=True, slots=True)
class RowScales:
    """float32 scales of fp8 rows, one per (block, head, slot) of their view. They move with the rows."""

    region: Region
    offset: int = 0
    block_stride: int = 0  # multiples of 4
    head_stride: int = 0
    slot_stride: int = 0


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """K or V of one layer.

    addr = region + offset + block*block_stride + head*head_stride + slot*slot_stride + elem*elem_stride

    Strides may be 0 only where the extent is 1.
    """

    region: Region = Region()
    offset: int = 0
    block_stride: int = 0
    head_stride: int = 0
    slot_stride: int = 0
    elem_stride: int = 0  # the element size for contiguous rows; 0 when opaque
    num_blocks: int = 1
    block_slots: int = 0  # rows per block; the capacity for a contiguous sequence
    heads: int = 0
    row_elems: int = 0  # head size; 0 when opaque
    dtype: DType = DType.UNSPECIFIED
    opaque_row_bytes: int = 0  # set instead of dtype: rows that are moved, never scored
    scale: float = 1.0  # fp8 rows: what a stored number is multiplied with
    row_scales: RowScales | None = None  # or one such number per row


def contiguous_view(
    region: Region, offset: int, heads: int, capacity: int, elems: int, dtype: DType
) -> ViewSpec:
    """A contiguous sequence [heads][capacity][elems] at `offset`: one block."""
    elem = bytes_of(dtype)
    return ViewSpec(
        region=region,
        offset=offset,
        elem_stride=elem,
        slot_stride=elem * elems,
        head_stride=elem * elems * capacity,
        num_blocks=1,
        block_slots=capacity,
        heads=heads,
        row_elems=elems,
        dtype=dtype,
    )


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A dense input of at most four axes. An axis that does not apply has extent 1."""

    region: Region = Region()
    offset: int = 0
    dtype: DType = DType.UNSPECIFIED
    layers: int = 1
    rows: int = 1
    heads: int = 1
    elems: int = 1
    layer_stride: int = 0
    row_stride: int = 0
    head_stride: int = 0
    elem_stride: int = 0


def dense_tensor(
    region: Region, offset: int, dtype: DType, layers: int, rows: int, heads: int, elems: int
) -> TensorSpec:
    """A tensor that is stored without gaps in the order [layers][rows][heads][elems]."""
    elem = bytes_of(dtype)
    return TensorSpec(
        region=region,
        offset=offset,
        dtype=dtype,
        layers=layers,
        rows=rows,
        heads=heads,
        elems=elems,
        elem_stride=elem,
        head_stride=elem * elems,
        row_stride=elem * elems * heads,
        layer_stride=elem * elems * heads * rows,
    )


# ---- rotary position embedding ---------------------------------------------------------------


class RopePairing(enum.IntEnum):
    UNSPECIFIED = 0
    HALF = 1  # channel j pairs with j + rotary_dim/2
    INTERLEAVED = 2  # channel 2j pairs with 2j + 1


@dataclass(frozen=True, slots=True)
class LinearScaling:
    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    factor: float = 8.0
    low: float = 1.0
    high: float = 4.0
    original_length: int = 8192


@dataclass(frozen=True, slots=True)
class YarnScaling:
    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0


class OtherScalingKind(enum.IntEnum):
    DYNAMIC_NTK = 1
    LONGROPE = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class OtherScaling:
    """A kind that cannot be re-rotated: said and refused (rope_unsupported), never dropped."""

    kind: OtherScalingKind = OtherScalingKind.UNKNOWN


Scaling = LinearScaling | Llama3Scaling | YarnScaling | OtherScaling


@dataclass(frozen=True, slots=True)
class ThetaSpeeds:
    """Speeds f_j = theta^(-2j/rotary_dim), scaled as the model's configuration says.

    Kinds whose speeds depend on the length of the text (dynamic NTK, LongRoPE) cannot be re-rotated.
    """

    theta: float
    scaling: Scaling | None = None


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding of keys: pair j of the row at position p is turned by p * f_j."""

    pairing: RopePairing = RopePairing.UNSPECIFIED
    rotary_dim: int = 0  # even; 0: nothing turns
    rotary_offset: int = 0  # first rotated channel of the row
    speeds: ThetaSpeeds | Seq[float] | None = None  # or rotary_dim/2 speeds; None when nothing turns
    attention_factor: float = 0.0  # YaRN: multiplies queries from before RoPE only; 0 = 1
    mrope_sections: Seq[int] = ()  # three that add up to rotary_dim/2, or none


# ---- layers and caches -------------------------------------------------------------------------


class LayerKind(enum.IntEnum):
    FULL = 1
    MLA = 2
    SLIDING = 3
    ALIBI = 4


@dataclass(frozen=True, slots=True)
class Slice:
    """Elements [first, first + elems) of a row."""

    first: int = 0
    elems: int = 0


@dataclass(frozen=True, slots=True)
class LayerSpec:
    kind: LayerKind = LayerKind.FULL
    layer_index: int = 0  # of the whole model
    q_heads: int = 0  # a multiple of kv_heads
    kv_heads: int = 0
    k: ViewSpec = ViewSpec()
    v: ViewSpec = ViewSpec()
    # MLA: V is a part of K's rows and moves with them; `v` stays as it is. Of opaque rows nothing is
    # set but Slice(0, 0).
    v_in_k: Slice | None = None
    companions: Seq[ViewSpec] = ()  # opaque side tables that move with the rows, at most 4
    rope_index: int = 0  # 1-based index into CacheSpec.ropes; 0: no rotary part
    # ALIBI: the engine's bias uses stored positions, not the row index. Else its rows are selected,
    # never moved.
    position_aware: bool = False
    # SLIDING: rows that a query sees, its own included. Such layers are selected, never moved.
    sliding_window: int = 0


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """One group of layers that share a block table."""

    layers: Seq[LayerSpec] = ()
    ropes: Seq[RopeSpec] = ()  # at most 8; needed by whatever rotates
    num_layers: int = 0  # full-attention layers of the whole model


# ---- memory to lend --------------------------------------------------------------------------------


class Access(enum.IntEnum):
    READ = 1  # enough to score and select; any write is refused
    READ_WRITE = 2


@dataclass(frozen=True, slots=True)
class CudaAllocation:
    """An allocation of a CUDA device, as the process that made it exports it."""

    handle: bytes  # cudaIpcMemHandle_t: 64 bytes that open the whole allocation
    device_uuid: str  # "GPU-..." or "MIG-..."
    bytes: int  # of the whole allocation
    generation: int  # no other allocation of this process has or had it


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Bytes just read at this place of a region: catches a wrong offset and a stale handle."""

    offset: int
    expected: bytes  # 1 to 64


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """Memory to lend: bytes of a sealed memfd, or of a CUDA allocation."""

    fd: int = -1  # borrowed for the call; the session keeps a duplicate until unregister
    cuda: CudaAllocation | None = None  # instead of `fd`
    offset: int = 0  # into the file, a multiple of the page size; into the allocation, any
    size: int = 0
    access: Access = Access.READ_WRITE
    tag: int = 0  # the caller's own number
    fingerprint: Fingerprint | None = None  # checked at the first registration only
    # Whatever must live as long as the memory is lent. The session lets go of it when the service has
    # closed its mappings (unregister returned); if it cannot learn of that by its own end, never.
    owner: object = field(default=None, repr=False, compare=False)
