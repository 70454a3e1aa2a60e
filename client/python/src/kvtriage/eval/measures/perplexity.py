"""Perplexity of a long text that is read with a cache of fixed size (the PG19 kind).

The text is read chunk by chunk through `SidecarCache`: after every chunk the service evicts down to the
budget, in place, so what is measured is what an engine would run. Every token is predicted once, by a cache
that holds at most `budget` rows and the chunk so far. The first chunks, which the budget still covers, are
the same for all policies and are left out of the mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import Cache, DynamicCache

from kvtriage import Session
from kvtriage.eval.measures.measure import Sample
from kvtriage.eval.models import LoadedModel
from kvtriage.eval.texts import Passage
from kvtriage.transformers import SidecarCache

FULL = "full cache"


class Perplexity:
    name = "perplexity"

    def __init__(
        self,
        loaded: LoadedModel,
        session: Session,
        passages: Sequence[Passage],
        policies: Sequence[str],
        budgets: Sequence[int],
        chunk: int,
    ) -> None:
        """`budgets`: rows kept after every chunk of `chunk` tokens. The full cache is measured as well."""
        self._loaded, self._session, self._chunk = loaded, session, chunk
        self._passages = {passage.name: passage for passage in passages}
        self._cases: dict[str, tuple[str, int]] = {
            f"{policy} kept={budget} tokens": (policy, budget) for budget in budgets for policy in policies
        }
        self._first = max(budgets) + chunk

    def samples(self) -> list[Sample]:
        return [Sample(f"{name}/{self._chunk}") for name in self._passages]

    def cases(self, sample: Sample) -> list[str]:
        return [FULL, *self._cases]

    def measure(self, sample: Sample, cases: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
        ids = self._passages[sample.name.rpartition("/")[0]].ids
        for label in cases:
            if label == FULL:
                losses = torch.cat(list(read_in_chunks(self._loaded.model, ids, DynamicCache(), self._chunk)))
            else:
                policy, budget = self._cases[label]
                losses = evicting_losses(self._loaded.model, self._session, ids, policy, budget, self._chunk)
            yield label, {"loss": mean_loss(losses, self._first)}


def evicting_losses(
    model: Any, session: Session, ids: Sequence[int], policy: str, budget: int, chunk: int
) -> torch.Tensor:
    """[len(ids) - 1]: the loss of every token but the first, evicted down to `budget` rows after every chunk.

    RuntimeError when an eviction was missed: the budget would not be what it is called.
    """
    losses = []
    with (
        SidecarCache(model, session, capacity=budget + chunk, policy=policy, kept_tokens=budget) as cache,
        cache.attach(model),
    ):
        for loss in read_in_chunks(model, ids, cache, chunk):
            losses.append(loss)
            cache.evict()
        if cache.evictions_missed:
            raise RuntimeError(f"{policy}: {cache.evictions_missed} evictions did not happen")
    return torch.cat(losses)


def read_in_chunks(model: Any, ids: Sequence[int], cache: Cache, chunk: int) -> Iterator[torch.Tensor]:
    """The losses of the tokens that each chunk predicts, before the next chunk is read."""
    for start in range(0, len(ids) - 1, chunk):
        end = min(start + chunk, len(ids) - 1)
        with torch.inference_mode():
            part = torch.tensor([ids[start:end]])
            logits = model(part, past_key_values=cache, use_cache=True).logits[0]
        yield token_losses(logits, ids[start + 1 : end + 1])


def token_losses(logits: torch.Tensor, targets: Sequence[int]) -> torch.Tensor:
    """Negative log-probability (nats) of each target. logits [rows, V]."""
    return torch.nn.functional.cross_entropy(logits, torch.tensor(targets), reduction="none")


def mean_loss(losses: torch.Tensor, first: int) -> float:
    """Mean over the tokens from `first` on: the logarithm of the perplexity."""
    return float(losses[first:].double().mean())
