"""CacheBlend: cached chunks glued together, and the tokens that differ most from a full prefill recomputed.

Source: CacheBlend (arXiv 2405.16444). The model's own layers do the work.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from kvtriage import DivergenceMetric, Outcome, RecomputeResult
from kvtriage.transformers.blend_pass import BlendPass, BlendPlan, ServiceAway
from kvtriage.transformers.chunk import Chunk, glue
from kvtriage.transformers.sidecar_cache import SidecarCache

logger = logging.getLogger("kvtriage.transformers")


@dataclass(frozen=True)
class Blended:
    """What became of a blend. The cache holds the rows of all tokens."""

    logits: torch.Tensor  # [vocabulary], of the last token
    token_ids: torch.Tensor  # [tokens]: the chunks and the suffix
    # None: the service was away, and everything was computed in the ordinary way.
    chosen: RecomputeResult | None


class Blender:
    """Blends chunks into a cache of one sequence. The last token, and so the answer, sees all of them.

    Layers before `check_layer` are computed for all tokens; there the rows whose values diverge most from
    the cached ones are chosen: `ratio` of the cached rows behind the first chunk, which is an exact prefix
    and right as it is. ratio 1 is a full prefill, 0 recomputes the suffix alone.

    To go on: cache.crop(-1), then `generate` with Blended.token_ids.
    """

    def __init__(
        self,
        model: Any,
        cache: SidecarCache,
        ratio: float = 0.15,
        check_layer: int = 1,
        metric: DivergenceMetric = DivergenceMetric.V_L2,
    ) -> None:
        if not 0 <= check_layer < cache.geometry.layers:
            raise ValueError(f"check_layer: one of the {cache.geometry.layers} layers")
        if metric is DivergenceMetric.K_L2:
            raise ValueError("metric: the values are compared, so V_L2 or V_RELATIVE")
        self.model, self.cache = model, cache
        self.ratio, self.check_layer, self.metric = ratio, check_layer, metric

    def visible(self, rows: torch.Tensor, limits: torch.Tensor, tokens: int) -> torch.Tensor:
        """Which keys the chosen rows see, bool [rows, tokens]: those at positions up to their own."""
        return torch.arange(tokens, device=rows.device) < limits[:, None]

    @torch.no_grad()
    def blend(self, chunks: Sequence[Chunk], suffix_ids: torch.Tensor) -> Blended:
        """Chunks, and behind them a text that was not cached ([tokens], at least one).

        A service that is away, or dies, costs time only: everything is then computed by the model.
        """
        if not chunks or len(suffix_ids) == 0:
            raise ValueError("chunks and a suffix are needed")
        tokens = torch.cat([*(chunk.token_ids for chunk in chunks), suffix_ids])
        if len(tokens) > self.cache.capacity:
            raise ValueError(f"{len(tokens)} rows do not fit the capacity of {self.cache.capacity}")
        glued = glue(self.cache, chunks)
        if glued.outcome is Outcome.APPLIED:
            try:
                return self._recompute(tokens, len(tokens) - len(suffix_ids), len(chunks[0]))
            except ServiceAway as away:
                reason: object = away
        else:
            reason = glued.error
        logger.warning("chunks could not be blended, computing all %d tokens: %s", len(tokens), reason)
        self.cache.reset()
        output = self.model(input_ids=tokens[None], past_key_values=self.cache, logits_to_keep=1)
        return Blended(output.logits[0, -1], tokens, None)

    def _recompute(self, tokens: torch.Tensor, cached: int, prefix: int) -> Blended:
        body = self.model.get_decoder()
        plan = BlendPlan(len(tokens), cached, prefix, self.check_layer, self.ratio, self.metric)
        blending = BlendPass(body, self.cache, self.cache.fresh_rows, plan, self.visible)
        with ExitStack() as hooks:
            for index in range(self.check_layer, len(body.layers)):
                before = blending.before_layer(index)
                hook = body.layers[index].register_forward_pre_hook(before, with_kwargs=True)
                hooks.callback(hook.remove)
            output = self.model(input_ids=tokens[None], past_key_values=blending.cache_view, logits_to_keep=1)
        self.cache.adopt(len(tokens))
        assert blending.chosen is not None
        return Blended(output.logits[0, -1], tokens, blending.chosen)
