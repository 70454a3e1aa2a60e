"""One policy at one budget: the cache after it, and what the model answers from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from kvtriage import CompressResult, Measure
from kvtriage.eval.models import LoadedModel
from kvtriage.transformers import SidecarCache

FULL = "full cache"
ANSWER_TOKENS = 12


@dataclass(frozen=True)
class Trial:
    """What is shown of one policy. `kept_share` [N]: the share of (layer, KV head) that kept each token."""

    policy: str
    kept_ratio: float
    answer: str
    log_probability: float  # of the right continuation, all its tokens together
    kept_bytes: int  # of K and V, over all layers
    error: float  # relative error of the attention output on the window, mean over the layers
    mass: float  # attention mass that the window's queries find among the kept rows, mean over the layers
    kept_share: np.ndarray

    @property
    def name(self) -> str:
        return self.policy if self.policy == FULL else f"{self.policy} {self.kept_ratio:.0%}"


class Trials:
    """Compresses one prefilled prompt in several ways. Nothing is read twice: every trial starts from a copy
    of the cache as the prefill left it."""

    def __init__(
        self, loaded: LoadedModel, cache: SidecarCache, ids: list[int], reply_ids: list[int]
    ) -> None:
        """Reads all tokens but the last, whose logits must already come from the compressed cache."""
        self._loaded, self._cache = loaded, cache
        self._last, self._reply = ids[-1], reply_ids
        self._rows = len(ids) - 1
        self._forward(ids[:-1])
        self._prefilled = cache.snapshot()

    def full(self) -> Trial:
        shape = self._loaded.geometry
        rows = shape.layers * shape.kv_heads * self._rows
        return self._trial(FULL, 1.0, rows, 0.0, 1.0, np.ones(self._rows))

    def compressed(self, policy: str, kept_ratio: float) -> Trial:
        """Raises KvtriageError when the service did not do it."""
        self._cache.restore(self._prefilled)
        outcome = self._cache.compress(
            policy=policy, kept_ratio=kept_ratio, measure=Measure(retained_mass=True, output_error=True)
        )
        kept = outcome.one_result().kept_sets
        assert outcome.result is not None
        error, mass = _means(outcome.result)
        share = np.bincount(kept.indices, minlength=self._rows) / len(kept.counts)
        return self._trial(policy, kept_ratio, int(kept.counts.sum()), error, mass, share)

    def _trial(
        self, policy: str, ratio: float, rows: int, error: float, mass: float, share: np.ndarray
    ) -> Trial:
        shape = self._loaded.geometry
        element = torch.finfo(self._loaded.model.dtype).bits // 8
        compressed = self._cache.snapshot()
        log_probability = self._log_probability()
        self._cache.restore(compressed)
        answer = self._greedy_answer()
        self._cache.restore(self._prefilled)
        return Trial(
            policy, ratio, answer, log_probability, 2 * rows * shape.head_dim * element, error, mass, share
        )

    def _log_probability(self) -> float:
        """Teacher forcing: the right tokens are fed, whatever the model would have said."""
        logits = self._forward([self._last, *self._reply[:-1]])
        chosen = logits.log_softmax(-1).gather(1, torch.tensor(self._reply)[:, None])
        return float(chosen.sum())

    def _greedy_answer(self) -> str:
        ids: list[int] = []
        token = self._last
        while len(ids) < ANSWER_TOKENS:
            token = int(self._forward([token])[-1].argmax())
            if token == self._loaded.tokenizer.eos_token_id:
                break
            ids.append(token)
        return " ".join(self._loaded.decode(ids).split())

    def _forward(self, ids: list[int]) -> torch.Tensor:
        """Logits [rows, vocabulary] of the fed tokens; of more than a reply's worth, of the last one only."""
        keep = len(ids) if len(ids) <= len(self._reply) else 1
        with torch.no_grad():
            output: Any = self._loaded.model(
                torch.tensor([ids]), past_key_values=self._cache, use_cache=True, logits_to_keep=keep
            )
        logits: torch.Tensor = output.logits[0].float()
        return logits


def _means(result: CompressResult) -> tuple[float, float]:
    """Output error and retained mass, each the mean over the layers."""
    errors = [quality.error for quality in result.quality if quality.error is not None]
    masses = [quality.mass_mean for quality in result.quality if quality.mass_mean is not None]
    return float(np.mean(errors)), float(np.mean(masses))
