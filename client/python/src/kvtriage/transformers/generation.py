"""`generate` of transformers, that outlives rows lost by a dying service."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

import torch

from kvtriage.transformers.errors import KvDamaged
from kvtriage.transformers.sidecar_cache import SidecarCache

logger = logging.getLogger("kvtriage.transformers")


def generate(model: Any, cache: SidecarCache, input_ids: torch.Tensor, **options: Any) -> Any:
    """model.generate(input_ids, past_key_values=cache, **options), with the cache attached.

    input_ids: the whole text so far, all turns of it, as always with a cache that is kept between turns.
    When rows are lost, the cache is reset and the text computed once more from its beginning (a streamer
    then sees its tokens again). KvDamaged when that happens a second time.
    """
    try:
        return _generate(model, cache, input_ids, options)
    except KvDamaged as damage:
        logger.error("%s; computing the prompt of %d tokens again", damage, input_ids.shape[1])
    cache.reset()
    return _generate(model, cache, input_ids, options)


def _generate(model: Any, cache: SidecarCache, input_ids: torch.Tensor, options: dict[str, Any]) -> Any:
    # transformers feeds the tokens from number get_seq_length() on. A cache that renumbers counts rows
    # there, so it is shown the text without as many tokens as it has dropped.
    hidden = cache.dropped if cache.renumber else 0
    shown = dict(options)
    if shown.get("attention_mask") is not None:
        shown["attention_mask"] = shown["attention_mask"][:, hidden:]
    with nullcontext() if cache.attached_to is model else cache.attach(model):
        output = model.generate(input_ids[:, hidden:], past_key_values=cache, **shown)
    if not hidden:
        return output
    if isinstance(output, torch.Tensor):
        return torch.cat([input_ids[:, :hidden], output], dim=1)
    output.sequences = torch.cat([input_ids[:, :hidden], output.sequences], dim=1)
    return output
