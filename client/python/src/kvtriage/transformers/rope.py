"""How a model turns its keys, read from its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from kvtriage import RopePairing, RopeSpec

# Model types of transformers whose apply_rotary_pos_emb pairs channel j with j + rotary_dim/2. The
# pairing cannot be read from a configuration and is never guessed: other types cannot be re-rotated.
HALF_PAIRED = frozenset(
    ("llama", "mistral", "mixtral", "ministral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe")
    + ("gemma", "gemma2", "gemma3_text", "phi3", "smollm3", "granite", "olmo2", "olmo3")
)

# Kinds whose speeds do not depend on the length of the text.
CONSTANT_KINDS = frozenset({"linear", "llama3", "yarn"})


@dataclass(frozen=True)
class Rope:
    """`spec` says how keys turn; where it is None, `problem` says why this model cannot be re-rotated."""

    spec: RopeSpec | None
    problem: str = ""


def rope_of(config: Any, head_dim: int) -> Rope:
    """The rotation of the full-attention layers of a text model's configuration.

    The speeds are the model's own float32 table, number by number, so that angle mode FP32_TABLE gives the
    very angles that the model has used.
    """
    parameters = getattr(config, "rope_parameters", None) or {}
    per_kind = "full_attention" in parameters  # Gemma 3: one set of parameters per kind of layer
    chosen = parameters["full_attention"] if per_kind else parameters
    kind = chosen.get("rope_type", "default")
    if config.model_type not in HALF_PAIRED:
        return Rope(None, f"the channel pairing of model_type {config.model_type!r} is not known")
    if kind == "default":
        dim = int(head_dim * chosen.get("partial_rotary_factor", 1.0))
        theta = chosen["rope_theta"]
        speeds = 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.int64).to(torch.float32) / dim))
        factor = 1.0
    elif kind in CONSTANT_KINDS:
        layer_type = "full_attention" if per_kind else None
        speeds, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), layer_type=layer_type)
    else:
        return Rope(
            None, f"rope_type {kind!r}: its speeds depend on the length of the text, or are not known"
        )
    return Rope(
        RopeSpec(
            pairing=RopePairing.HALF,
            rotary_dim=2 * len(speeds),
            speeds=[float(speed) for speed in speeds],
            attention_factor=float(factor),
        )
    )


def unrotate(rows: torch.Tensor, positions: torch.Tensor, spec: RopeSpec) -> torch.Tensor:
    """Rows [..., rows, head_dim] turned back by their positions [rows], in float32.

    A factor that the model multiplied its queries with (YaRN) stays in them.
    """
    half = spec.rotary_dim // 2
    speeds = torch.tensor(spec.speeds, dtype=torch.float32, device=rows.device)
    angles = (positions.to(torch.float32)[:, None] * speeds).double()  # the model's float32 products
    cos, sin = angles.cos().float(), angles.sin().float()
    result = rows.float().clone()
    a, b = rows[..., :half].float(), rows[..., half : 2 * half].float()
    result[..., :half] = a * cos + b * sin
    result[..., half : 2 * half] = b * cos - a * sin
    return result
