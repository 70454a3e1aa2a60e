"""Layers that the comparisons run on, and the path to the float64 reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "golden")]

import kvtriage
import models
import torch
from captured_layer import CapturedLayer, capture
from kvtriage.eval.models import load_model
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
    loaded = load_model("smollm2")
    ids = torch.tensor(loaded.encode(TEXT.read_text()))
    return capture(loaded.model, ids, SMOLLM2_LAYERS)
