"""The calls that compact a cache, put together from what the adapter knows."""

from __future__ import annotations

from kvtriage import (
    AngleMode,
    CallOptions,
    Code,
    CompressOutcome,
    CompressRequest,
    InPlace,
    KvtriageError,
    LengthRule,
    Measure,
    ObserveOutcome,
    ObserveRequest,
    ObserveStep,
    Outcome,
    Policy,
    ScoreInputs,
    SelectOnly,
    SequenceFate,
    Session,
)
from kvtriage.transformers.answer_format import AnswerFormat, rows_of
from kvtriage.transformers.lent_cache import LentCache
from kvtriage.transformers.lent_tensor import finish_writes
from kvtriage.transformers.query_capture import QueryCapture
from kvtriage.transformers.resolved_policy import ResolvedPolicy
from kvtriage.transformers.score_inputs import ScorerInputs
from kvtriage.transformers.sequence_book import SequenceBook


class CompactionCalls:
    """Compress and Observe about all sequences of a cache and all its layers. Holds no lengths."""

    def __init__(
        self,
        session: Session,
        lent: LentCache,
        book: SequenceBook,
        capture: QueryCapture,
        inputs: ScorerInputs,
        lengths: LengthRule,
        renumber: bool,
        call: CallOptions,
        answers: AnswerFormat,
    ) -> None:
        self._session, self._lent, self._book = session, lent, book
        self._answers = answers
        self._capture, self._inputs = capture, inputs
        self._lengths, self._call = lengths, call
        # A model of transformers has a float32 table of angles.
        self._renumber = AngleMode.FP32_TABLE if renumber else None

    def compress(
        self,
        policy: ResolvedPolicy,
        rows: int,
        query_rows: int,
        *,
        kept_tokens: int | None,
        kept_ratio: float | None,
        measure: Measure,
        select_only: bool,
        keep_state: bool,
    ) -> CompressOutcome:
        """About `rows` rows per sequence, with the newest `query_rows` captured queries."""
        try:
            inputs = self._inputs_for(policy, rows, query_rows)
        except KvtriageError as error:
            return CompressOutcome(_not_sent(error), error, fates=self._unchanged())
        request = CompressRequest(
            cache=self._lent.cache,
            sequences=self._book.specs(rows, self._capture, query_rows),
            policy=policy.keeping(kept_tokens, kept_ratio),
            inputs=inputs,
            act=SelectOnly() if select_only else InPlace(),
            renumber=None if select_only else self._renumber,
            lengths=self._lengths,
            kept_format=self._answers.choose(rows, rows_of(rows, kept_tokens, kept_ratio)),
            measure=measure,
            keep_state=keep_state,
        )
        finish_writes(self._lent.tensor)
        return self._session.compress(request, self._call)

    def observe(self, policy: ResolvedPolicy, running: Policy, rows: int, query_rows: int) -> ObserveOutcome:
        """The newest `query_rows` rows have come since the last call: their queries vote, nothing is evicted.

        `running`: the policy with its amount, the same in every call about a sequence.
        """
        try:
            inputs = self._inputs_for(policy, rows, query_rows)
        except KvtriageError as error:
            return ObserveOutcome(_not_sent(error), error, fates=self._unchanged())
        specs = self._book.specs(rows, self._capture, query_rows)
        request = ObserveRequest(
            cache=self._lent.cache,
            policy=running,
            steps=[ObserveStep(spec, accumulate_only=True) for spec in specs],
            inputs=inputs,
        )
        finish_writes(self._lent.tensor)
        return self._session.observe(request, self._call)

    def _inputs_for(self, policy: ResolvedPolicy, rows: int, query_rows: int) -> ScoreInputs:
        """KvtriageError when what a scorer alone needs could not be lent: the service may be away."""
        return self._inputs.inputs(policy, query_rows, rows + self._book.position_gap)

    def _unchanged(self) -> tuple[SequenceFate, ...]:
        return tuple(SequenceFate(sequence_id) for sequence_id in self._book.ids)


def _not_sent(error: KvtriageError) -> Outcome:
    return Outcome.UNAVAILABLE if error.code is Code.UNAVAILABLE else Outcome.UNCHANGED
