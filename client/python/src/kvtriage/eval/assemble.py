"""Makes the measures that a plan asks for, with their texts drawn and their memory lent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvtriage import Session
from kvtriage.eval.measures.blend import Blend
from kvtriage.eval.measures.divergence import Divergence
from kvtriage.eval.measures.measure import Measure
from kvtriage.eval.measures.perplexity import Perplexity
from kvtriage.eval.measures.recall import Recall
from kvtriage.eval.measures.retrieval import Retrieval
from kvtriage.eval.models import LoadedModel
from kvtriage.eval.plan import Plan
from kvtriage.eval.reading import Reading
from kvtriage.eval.texts import Passage, Text, passages

QUESTION_ROOM = 192  # tokens of question, template and reply beyond a prompt's context


@contextmanager
def measures_of(
    plan: Plan, loaded: LoadedModel, session: Session, texts: list[Text]
) -> Iterator[list[Measure]]:
    """The memory that the measures share is given back at the end. ValueError when the texts are too short."""

    def draw(length: int, count: int) -> list[Passage]:
        return passages(texts, loaded.encode, length, count, plan.seed)

    def seeds(count: int) -> range:
        return range(plan.seed, plan.seed + count)

    made: list[Measure] = []
    reading = Reading(loaded, session, _capacity(plan))
    try:
        for part in plan.divergence:
            drawn = draw(part.cut + part.future, part.samples)
            made.append(Divergence(reading, drawn, part.cut, part.cases))
        if plan.recall:
            drawn = draw(plan.recall.cut + 1, plan.recall.samples)
            made.append(Recall(reading, drawn, plan.recall.cut, plan.recall.windows))
        if plan.perplexity:
            p = plan.perplexity
            drawn = draw(p.tokens, p.samples)
            made.append(Perplexity(loaded, session, drawn, p.policies, p.budgets, p.chunk))
        if plan.retrieval:
            r = plan.retrieval
            made.append(Retrieval(reading, r.tasks, seeds(r.samples), r.tokens, r.cases))
        if plan.blend:
            b = plan.blend
            drawn = draw(b.tokens + b.future, b.samples)
            made.append(Blend(loaded, session, drawn, seeds(b.samples), b.tokens, b.chunks, b.ratio))
        yield made
    finally:
        reading.close()


def _capacity(plan: Plan) -> int:
    """Rows of the longest text that is read at once."""
    lengths = [part.cut + part.future for part in plan.divergence]
    if plan.recall:
        lengths.append(plan.recall.cut + 1)
    if plan.retrieval:
        lengths.append(plan.retrieval.tokens + QUESTION_ROOM)
    return max(lengths, default=1)
