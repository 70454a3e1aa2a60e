"""What comes out of Session.compress."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kvtriage.errors import KvtriageError, bad_argument
from kvtriage.policy import Granularity, PolicyParts

_NO_ROWS: npt.NDArray[np.int32] = np.zeros(0, np.int32)
_NO_ROWS.setflags(write=False)


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
