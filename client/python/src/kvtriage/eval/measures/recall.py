"""Does a scorer see what the next query will need?

The oracle of the OBCache paper: the 40 rows whose exact deletion changes the attention output of the first
decoded token most, per layer and KV head. Its query is not among those that vote. A scorer's 40 best rows,
nothing protected and nothing pooled, are held against them, for windows of several lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from kvtriage import (
    Budget,
    Granularity,
    Policy,
    PolicyParts,
    Pool,
    Protect,
    Reduce,
    Scorer,
    ScorerKind,
    Window,
)
from kvtriage.eval.measures.measure import Sample
from kvtriage.eval.reading import Reading
from kvtriage.eval.selection import KeptRows, select
from kvtriage.eval.texts import Passage

TOP = 40
SCORERS = {
    "attention": ScorerKind.ATTENTION,
    "drop": ScorerKind.DROP,
    "value": ScorerKind.OBC_VALUE,
    "key": ScorerKind.OBC_KEY,
    "joint": ScorerKind.OBC_JOINT,
}


class Recall:
    name = "recall"

    def __init__(
        self, reading: Reading, passages: Sequence[Passage], cut: int, windows: Sequence[int]
    ) -> None:
        self._reading, self._cut = reading, cut
        self._passages = {passage.name: passage for passage in passages}
        self._cases = {f"{name} w={window}": (name, window) for window in windows for name in SCORERS}

    def samples(self) -> list[Sample]:
        return [Sample(f"{name}/{self._cut}") for name in self._passages]

    def cases(self, sample: Sample) -> list[str]:
        return list(self._cases)

    def measure(self, sample: Sample, cases: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
        ids = self._passages[sample.name.rpartition("/")[0]].ids[: self._cut + 1]
        self._reading.read(ids, self._cut)
        oracle = oracle_rows(self._reading, TOP)
        for label in cases:
            scorer, window = self._cases[label]
            chosen = select(self._reading, best_rows(SCORERS[scorer], window, TOP))
            yield label, {"recall": overlap(chosen, oracle) / TOP}


def best_rows(scorer: ScorerKind, window: int, count: int) -> Policy:
    """The rows with the best scores and nothing else."""
    return Policy(
        parts=PolicyParts(
            scorer=Scorer(scorer),
            window=Window(last=window),
            reduce=Reduce.SUM,
            pool=Pool(),
            protect=Protect(),
            budget=Budget(kept_tokens=count),
            granularity=Granularity.PER_HEAD,
        )
    )


def oracle_rows(reading: Reading, count: int) -> list[torch.Tensor]:
    """Per layer [Hk, count]: rows before the cut, by the true change that their deletion makes.

    Deleting row p of a softmax leaves o' = (o - A v) / (1 - A), so the change is A / (1 - A) * ||v - o||;
    squares are added over the query heads of a group.
    """
    shape, group, cut = reading.loaded.geometry, reading.loaded.group, reading.cut
    best = []
    for layer in range(shape.layers):
        query = reading.queries[layer, :, cut].reshape(shape.kv_heads, group, shape.head_dim).double()
        keys = reading.keys[layer, :, : cut + 1].double()
        values = reading.values[layer, :, : cut + 1].double()
        logits = torch.einsum("hgd,hnd->hgn", query, keys) * reading.scale
        weights = torch.softmax(logits, -1)
        outputs = torch.einsum("hgn,hnd->hgd", weights, values)
        distance = (values[:, None] - outputs[:, :, None]).norm(dim=-1)
        rest = (1 - weights).clamp(min=1e-12)
        change = (weights / rest * distance).square().sum(1)[:, :cut]
        best.append(change.topk(min(count, cut), -1).indices)
    return best


def overlap(chosen: KeptRows, oracle: Sequence[torch.Tensor]) -> float:
    """Rows that are in both, mean over layers and heads."""
    both = [
        len(set(rows.tolist()) & set(best.tolist()))
        for heads, layer in zip(chosen, oracle)
        for rows, best in zip(heads, layer)
    ]
    return sum(both) / len(both)
