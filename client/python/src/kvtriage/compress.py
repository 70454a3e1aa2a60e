"""What goes into and comes out of Session.compress."""

from __future__ import annotations

import enum
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kvtriage.cache_description import Cache, TensorSpec
from kvtriage.errors import KvtriageError, bad_argument
from kvtriage.group import Group
from kvtriage.policy import Granularity, Policy, PolicyParts

# Row numbers, block ids and positions that a caller gives: an int32 array is sent as it is, anything else
# is converted.
Ints = Seq[int] | npt.NDArray[np.integer[Any]]

_NO_ROWS: npt.NDArray[np.int32] = np.zeros(0, np.int32)
_NO_ROWS.setflags(write=False)


# ---- the request ---------------------------------------------------------------------------------


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


# ---- the answer ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptSets:
    """Kept rows, ascending, in the numbering the cache had when the call began.

    `indices` are all lists back to back, `counts` their lengths: layer-major, then KV head; one per layer
    for PER_LAYER; one in all for PER_SEQUENCE. Both are read-only views of the answer's bytes, but for
    indices that came as KeptFormat.BITMAP. With KeptFormat.COUNTS there are no indices.
    """

    granularity: Granularity
    counts: npt.NDArray[np.int32]
    indices: npt.NDArray[np.int32]
    heads: tuple[int, ...]  # KV heads per layer of the call

    @property
    def lists(self) -> list[npt.NDArray[np.int32]]:
        """One view per list. None at all with KeptFormat.COUNTS."""
        if not self.has_rows:
            return []
        return np.split(self.indices, np.cumsum(self.counts)[:-1])

    @property
    def has_rows(self) -> bool:
        """Whether the answer says which rows were kept: not with KeptFormat.COUNTS."""
        return len(self.indices) == int(self.counts.sum(dtype=np.int64))

    def at(self, layer: int, head: int) -> npt.NDArray[np.int32]:
        """The list of a (layer of the call, KV head), also where heads or layers share one.

        ValueError with KeptFormat.COUNTS.
        """
        number = self.number_of(layer, head)
        if not self.has_rows:
            raise ValueError("the answer says how many rows were kept, not which: KeptFormat.COUNTS")
        begin = int(self.counts[:number].sum(dtype=np.int64))
        return self.indices[begin : begin + int(self.counts[number])]

    def count_at(self, layer: int, head: int) -> int:
        """The length of the list of a (layer of the call, KV head), in every format."""
        return int(self.counts[self.number_of(layer, head)])

    def number_of(self, layer: int, head: int) -> int:
        """Which of the lists holds for a (layer of the call, KV head)."""
        if not 0 <= layer < len(self.heads) or not 0 <= head < self.heads[layer]:
            raise IndexError(f"no KV head {head} in layer {layer} of this call")
        if self.granularity == Granularity.PER_HEAD:
            return sum(self.heads[:layer]) + head
        return layer if self.granularity == Granularity.PER_LAYER else 0

    def one_length(self) -> int:
        """The length of every list. ValueError where they differ: ask for LengthRule.ONE then."""
        if self.counts.min() != self.counts.max():
            raise ValueError(
                f"the kept sets have {self.counts.min()} to {self.counts.max()} rows: there is no one "
                "length (LengthRule.ONE has the service refuse such a policy)"
            )
        return int(self.counts[0])


@dataclass(frozen=True, slots=True)
class LayerOutcome:
    layer: int  # index into CacheSpec.layers
    kept: int  # longest list
    dropped: int
    trimmed: int  # protected rows that did not fit the budget
    nonfinite_tokens: int
    skipped_rows: int
    stage1: int  # rows that criticalkv's stages chose, over the KV heads
    stage2: int
    lse_suspect: bool


@dataclass(frozen=True, slots=True)
class SequenceResult:
    sequence_id: int
    kv_revision: int  # send it with the next call
    logical_len: int
    kept: int  # new physical length
    dropped: int
    total_dropped: int
    next_position: int  # logical_len, or kept if renumbered
    blocks_used: int
    noop: bool  # the budget covered everything: no byte was written
    # The table to go on with: the old one (of a copy: the destination), cut at blocks_used. No freed block
    # is left in it. Of a select-only call: as it was.
    table: npt.NDArray[np.int32]
    rewritten: npt.NDArray[np.int32]  # entries of `table` with changed bytes: drop their prefix hash
    kept_sets: KeptSets
    layers: tuple[LayerOutcome, ...]


@dataclass(frozen=True, slots=True)
class Quality:
    """Of one (sequence, layer); a measure that was not asked for is None or empty."""

    sequence_id: int
    layer: int  # index into CacheSpec.layers
    mass_mean: float | None
    mass_p5: float | None
    error: float | None
    error_p95: float | None
    recall_mean: float | None
    head_mass_mean: tuple[float, ...]
    head_mass_low: tuple[float, ...]
    head_error: tuple[float, ...]
    head_error_high: tuple[float, ...]
    head_recall: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds, measured by the service."""

    queue: int = 0
    score: int = 0
    select: int = 0
    move: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class CompressResult:
    job_id: int
    replayed: bool  # a stored answer
    timing: Timing
    policy: PolicyParts  # the expanded form that ran
    sequences: tuple[SequenceResult, ...]
    quality: tuple[Quality, ...]


# ---- what became of the cache --------------------------------------------------------------------------


class Outcome(enum.Enum):
    APPLIED = "applied"  # done (of a select-only call: answered)
    UNCHANGED = "unchanged"  # nothing happened to the cache
    DAMAGED = "damaged"  # some sequences are lost: drop their rows and recompute them
    UNAVAILABLE = "unavailable"  # no service right now, nothing was sent, nothing happened


@dataclass(frozen=True, slots=True)
class SequenceFate:
    """Of one sequence of the request, whatever happened."""

    sequence_id: int
    outcome: Outcome = Outcome.UNCHANGED  # never UNAVAILABLE
    # When applied: the new physical length, revision and table. `kept_rows` is set when the answer was
    # lost and the lengths come from the ledger: per (layer of the call, head or shared set).
    kept: int = 0
    kv_revision: int = 0
    table: npt.NDArray[np.int32] = field(default_factory=lambda: _NO_ROWS)
    kept_rows: npt.NDArray[np.int32] = field(default_factory=lambda: _NO_ROWS)


@dataclass(frozen=True, slots=True)
class CompressOutcome:
    outcome: Outcome
    # None when an answer came. Otherwise why none did, also when the ledger says APPLIED.
    error: KvtriageError | None = None
    result: CompressResult | None = None
    fates: tuple[SequenceFate, ...] = ()  # one per sequence of the request, in its order
    # The service may still write: the blocks of damaged sequences and of a copy's destination must not be
    # reused until Session.quiet(quarantine) is true. 0: they may be reused at once.
    quarantine: int = 0

    @property
    def damaged(self) -> list[int]:
        """Ids of the sequences that are lost."""
        return [fate.sequence_id for fate in self.fates if fate.outcome is Outcome.DAMAGED]

    def one_result(self) -> SequenceResult:
        """The result of a call about one sequence. Raises the error of a call that was not answered."""
        if self.result is None:
            raise self.error or bad_argument("there is no result")
        if len(self.result.sequences) != 1:
            raise ValueError(f"the call was about {len(self.result.sequences)} sequences")
        return self.result.sequences[0]
