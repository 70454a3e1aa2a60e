"""A model with random weights whose tokens are bytes, so that no file has to be at hand."""

from __future__ import annotations

from pathlib import Path

import torch
from kvtriage.eval.models import LoadedModel
from kvtriage.transformers.model_geometry import geometry_of
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def tiny_model(seed: int = 3) -> LoadedModel:
    """Llama with three layers, six query heads and two KV heads; attention is far from uniform."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        initializer_range=0.2,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=256,
    )
    model = LlamaForCausalLM(config).eval()
    return LoadedModel("tiny", model, byte_tokenizer(), geometry_of(config))


def byte_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)} | {"<end>": 256}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


def save(loaded: LoadedModel, folder: Path) -> Path:
    """As a folder that `load_model` reads."""
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder


def some_ids(count: int, seed: int = 1) -> list[int]:
    return torch.randint(0, 256, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
