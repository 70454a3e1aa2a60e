"""What goes into and comes out of Session.observe and Session.rewind: eviction while a model decodes.

Every call adds what the queries of new rows have seen to running scores that the service keeps, and cuts
sequences back that have outgrown their budget.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from kvtriage.cache_description import Cache
from kvtriage.compress import Act, AngleMode, KeptFormat, LengthRule, ScoreInputs, SelectOnly, Sequence
from kvtriage.compress_result import Outcome, SequenceFate, SequenceResult, Timing
from kvtriage.errors import KvtriageError
from kvtriage.policy import Policy, PolicyParts


@dataclass(slots=True)
class ObserveStep:
    # Policies with window `all`: `rows_count` new rows, whose K and V are in the cache, so that
    # physical_len = the rows of the last answer + rows_count. Without row_limits.
    sequence: Sequence
    # The newest of the new rows are drafts: not accepted yet. They are with the next call, unless rewind
    # takes them back before. At most 64; no eviction meanwhile.
    draft_rows: int = 0
    trigger: int = 0  # evict when physical_len is above it; 0: the budget
    accumulate_only: bool = False  # never evict: a chunk of a prefill

    @property
    def may_evict(self) -> bool:
        return not self.accumulate_only and self.draft_rows == 0


@dataclass(slots=True)
class ObserveRequest:
    cache: Cache = field(default_factory=Cache)  # all its layers
    # With the first call of a sequence; later the same or none. The amount is kept_tokens, and all lists
    # get one length.
    policy: Policy | str | None = None
    steps: Seq[ObserveStep] = ()
    inputs: ScoreInputs = field(default_factory=ScoreInputs)  # of the new rows
    # What follows is for the sequences that are cut back.
    act: Act = field(default_factory=SelectOnly)
    renumber: AngleMode | None = None
    lengths: LengthRule = LengthRule.ANY
    kept_format: KeptFormat = KeptFormat.INDICES


@dataclass(frozen=True, slots=True)
class ObserveStepResult:
    sequence_id: int
    evicted: SequenceResult | None  # when the sequence was cut back
    draft_rows: int  # outstanding
    # The sequence had no running scores, or they did not fit its rows: they begin with this call.
    started: bool


@dataclass(frozen=True, slots=True)
class ObserveResult:
    job_id: int
    replayed: bool  # a stored answer
    timing: Timing
    policy: PolicyParts  # the expanded form that ran
    steps: tuple[ObserveStepResult, ...]


@dataclass(frozen=True, slots=True)
class ObserveOutcome:
    outcome: Outcome
    # None when an answer came. Otherwise why none did, also when the ledger says APPLIED.
    error: KvtriageError | None = None
    result: ObserveResult | None = None
    # One per step. APPLIED: its new rows count, and `kept` is its length, cut back or not. UNCHANGED: to
    # this sequence the call never happened; bring its rows with the next one.
    fates: tuple[SequenceFate, ...] = ()
    quarantine: int = 0  # as CompressOutcome.quarantine

    @property
    def damaged(self) -> list[int]:
        """Ids of the sequences that are lost."""
        return [fate.sequence_id for fate in self.fates if fate.outcome is Outcome.DAMAGED]


@dataclass(frozen=True, slots=True)
class RewindRequest:
    sequence_id: int
    generation: int = 0
    rows: int = 1  # newest draft rows to forget, at least 1


@dataclass(frozen=True, slots=True)
class RewindResult:
    draft_rows: int  # still outstanding
    physical_len: int  # rows that count now
