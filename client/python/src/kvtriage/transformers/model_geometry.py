"""The shape of a model's KV cache, and whether a compressed one can serve that model at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvtriage.transformers.errors import UnsupportedModel
from kvtriage.transformers.rope import Rope, rope_of


@dataclass(frozen=True)
class ModelGeometry:
    """Of a decoder whose layers all have full attention and one head size for keys and values."""

    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    rope: Rope
    turning_layers: tuple[bool, ...]  # False: a layer without rotary positions


def geometry_of(config: Any) -> ModelGeometry:
    """Reads a transformers configuration. UnsupportedModel names the setting that stands in the way."""
    text = config.get_text_config(decoder=True)
    _refuse_other_attention(text)
    layers = text.num_hidden_layers
    q_heads = text.num_attention_heads
    if not isinstance(q_heads, int):
        raise UnsupportedModel("num_attention_heads differs by layer; all layers must have equal heads")
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // q_heads
    return ModelGeometry(
        layers=layers,
        q_heads=q_heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or q_heads,
        head_dim=head_dim,
        hidden=text.hidden_size,
        rope=rope_of(text, head_dim),
        turning_layers=_turning_layers(text, layers),
    )


def _refuse_other_attention(text: Any) -> None:
    """Full attention only: elsewhere the mask or the bias comes from the index of a row."""
    if getattr(text, "is_encoder_decoder", False):
        raise UnsupportedModel("is_encoder_decoder: only decoder-only models are supported")
    if getattr(text, "kv_lora_rank", None):
        raise UnsupportedModel("kv_lora_rank: keys and values of this model have different sizes (MLA)")
    if not getattr(text, "rope_parameters", None):
        raise UnsupportedModel(
            f"model_type {text.model_type!r} has no rope_parameters: positions must be in the keys"
        )
    window = getattr(text, "sliding_window", None)
    kinds = getattr(text, "layer_types", None)
    if kinds is None:
        if window is not None:
            raise UnsupportedModel(
                f"sliding_window={window}: the mask of sliding layers comes from the place of a row, so their rows "
                "cannot be moved (a model that was trained without a window has sliding_window=None)"
            )
        return
    other = [index for index, kind in enumerate(kinds) if kind != "full_attention"]
    if other:
        raise UnsupportedModel(
            f"layer_types: {len(other)} of {len(kinds)} layers, the first of them layer {other[0]}, are "
            f"{kinds[other[0]]!r} (sliding_window={window}); only full_attention layers can be compressed"
        )


def _turning_layers(text: Any, layers: int) -> tuple[bool, ...]:
    turns = getattr(text, "no_rope_layers", None)  # 1: the layer does turn (SmolLM3)
    return tuple(bool(turn) for turn in turns) if turns else (True,) * layers
