"""A tiny model that vLLM can run, prompts for it, and its right answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from masked_reference import MaskedReference

SEED = 7
WORDS = 512


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of grouped attention; its weights are large enough for answers that are not all alike."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        initializer_range=0.12,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    torch.manual_seed(SEED)
    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def reference(tiny_model: Path) -> MaskedReference:
    return MaskedReference(tiny_model)


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    """Six prompts of 180 to 330 tokens."""
    import random

    random_words = random.Random(SEED)
    return [[random_words.randrange(2, WORDS) for _ in range(180 + 30 * i)] for i in range(6)]
