"""What goes into Session.compress; what comes out: compress_result.py."""

from __future__ import annotations

import enum
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kvtriage.cache_description import Cache, TensorSpec
from kvtriage.group import Group
from kvtriage.policy import Granularity, Policy

# Row numbers, block ids and positions that a caller gives: an int32 array is sent as it is, anything else
# is converted.
Ints = Seq[int] | npt.NDArray[np.integer[Any]]


class Sharing(enum.IntEnum):
    """Which blocks of the table others can read. Those are never written."""

    UNSPECIFIED = 0
    ALL_PRIVATE = 1
    PREFIX = 2
    BITMAP = 3
    UNKNOWN = 4


@dataclass(slots=True)
class RowLists:
    """Ascending row numbers without repeats.

    One list (PER_SEQUENCE), one per layer, or layer-major one per (layer, KV head).
    """

    granularity: Granularity = Granularity.PER_SEQUENCE
    lists: Seq[Ints] = ()


# Positions of rows in order: the first one's, or one per row (three planes back to back where rows turn
# with M-RoPE).
Positions = int | Ints


@dataclass(slots=True)
class Sequence:
    sequence_id: int = 0  # the caller's own, not 0
    generation: int = 0  # +1 when the rows start anew
    kv_revision: int = 0  # the last value an answer gave; 0 at first
    logical_len: int = 0  # tokens seen
    physical_len: int = 0  # rows in the cache now
    first_slot: int = 0  # rows to skip in the first block (left padding)
    table: Ints = ()  # block ids in order
    sharing: Sharing = Sharing.UNSPECIFIED  # required by every act that writes
    shared_blocks: int = 0  # PREFIX
    shared_bitmap: bytes = b""  # BITMAP: bit i is table entry i, lowest bit first
    destination: Ints = ()  # copy only: blocks to write
    rows_begin: int = 0  # this sequence's rows on the row axis of the inputs
    rows_count: int = 0
    row_limits: Ints = ()  # rows each of them may see; empty: up to its own
    protect: RowLists | None = None  # kept whatever their score
    positions: Positions | None = None  # of the cached rows; needed to rotate anything


class QueryStage(enum.IntEnum):
    UNSPECIFIED = 0
    BEFORE_ROPE = 1
    AFTER_ROPE = 2


class LseBase(enum.IntEnum):
    UNSPECIFIED = 0
    E = 1
    TWO = 2


class HeadAxis(enum.IntEnum):
    UNSPECIFIED = 0
    QUERY = 1
    KV = 2
    SUMMED = 3  # one row, already summed over all heads (and ranks)


@dataclass(frozen=True, slots=True)
class KeysOnly:
    """Nothing: for scorers that need no queries, or a decision by running scores."""


@dataclass(frozen=True, slots=True)
class QueryWindow:
    """Q alone: two passes."""

    q: TensorSpec
    stage: QueryStage = QueryStage.UNSPECIFIED


@dataclass(frozen=True, slots=True)
class QueryOutput:
    """Q, O and LSE: one pass."""

    q: TensorSpec
    stage: QueryStage
    o: TensorSpec
    lse: TensorSpec
    lse_base: LseBase


@dataclass(frozen=True, slots=True)
class ReadyAttention:
    """A, Z and O; the elem axis of a and z is the cached row."""

    a: TensorSpec
    z: TensorSpec | None = None
    o: TensorSpec | None = None


@dataclass(frozen=True, slots=True)
class ColumnSums:
    """Sums of A over the window: one row per sequence; the elem axis is the cached row."""

    sums: TensorSpec
    heads: HeadAxis = HeadAxis.UNSPECIFIED


ScoreSource = KeysOnly | QueryWindow | QueryOutput | ReadyAttention | ColumnSums


@dataclass(slots=True)
class ScoreInputs:
    source: ScoreSource = field(default_factory=KeysOnly)
    softmax_scale: float = 0.0  # required with Q and by expected-attention
    logit_softcap: float = 0.0  # c of a model that caps logits as c * tanh(z / c); 0: off
    # One number per layer of the call and query head: [layers, 1, heads, 1]. Learned sinks join the
    # softmax of Q alone; slopes are required with Q on ALiBi layers.
    sink_logits: TensorSpec | None = None
    alibi_slopes: TensorSpec | None = None
    # W_O: layer, row = hidden, head = query head, elem = dv. Lent once, named by every call whose policy
    # may read it (criticalkv).
    output_projection: TensorSpec | None = None
    # Mean (layer, one row, query head, dk) and covariance (layer, dk rows, query head, dk) of the queries
    # before RoPE, together or not at all: expected-attention.
    query_mean: TensorSpec | None = None
    query_covariance: TensorSpec | None = None


@dataclass(frozen=True, slots=True)
class SelectOnly:
    """Nothing is written."""


@dataclass(frozen=True, slots=True)
class CopyTo:
    """Kept rows go to Sequence.destination, blocks of `cache`, which may be the source cache."""

    cache: Cache


@dataclass(frozen=True, slots=True)
class InPlace:
    """Kept row j of a list moves to row j. The library picks the ledger slot."""


Act = SelectOnly | CopyTo | InPlace


class LengthRule(enum.IntEnum):
    """Which lengths the engine can carry."""

    ANY = 1
    PER_LAYER = 2
    ONE = 3


class KeptFormat(enum.IntEnum):
    """How the answer says which rows were kept.

    An answer over ServerLimits.max_response_bytes is refused before anything is written
    (result_too_large): long sequences need a smaller format.
    """

    INDICES = 1  # 4 bytes per kept row
    BITMAP = 2  # physical_len bits per list; KeptSets is the same
    COUNTS = 4  # how many rows each list has: KeptSets.lists is empty


@dataclass(frozen=True, slots=True)
class Measure:
    retained_mass: bool = False
    output_error: bool = False
    oracle_recall: bool = False


class AngleMode(enum.IntEnum):
    """Of the angle that turns a key to another position."""

    UNSPECIFIED = 0
    EXACT = 1  # (new - old) * f in float64
    FP32_TABLE = 2  # difference of float32 products: equals a model's float32 table


@dataclass(slots=True)
class CompressRequest:
    cache: Cache = field(default_factory=Cache)
    layers: Ints = ()  # ascending indexes into CacheSpec.layers; empty: all
    sequences: Seq[Sequence] = ()
    policy: Policy | str = ""
    inputs: ScoreInputs = field(default_factory=ScoreInputs)
    act: Act = field(default_factory=SelectOnly)
    # Kept row j is turned to position j, and the next token's position is `kept`: not with SelectOnly, and
    # only where all lists have one length and `positions` of the sequences are given.
    renumber: AngleMode | None = None
    lengths: LengthRule = LengthRule.ANY
    kept_format: KeptFormat = KeptFormat.INDICES
    measure: Measure = Measure()
    # observe goes on from these scores: a policy with window `all` over all layers.
    keep_state: bool = False
    group: Group | None = None  # ranks that decide together
