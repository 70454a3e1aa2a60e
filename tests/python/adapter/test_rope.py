"""The rotation that the service is told of is the model's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kvtriage import AngleMode, InPlace, Outcome, RerotateRequest, Session
from kvtriage.transformers import SidecarCache
from kvtriage.transformers.model_geometry import geometry_of
from kvtriage.transformers.rope import unrotate
from tiny_models import tiny_model, tokens

sys.path.append(str(Path(__file__).resolve().parents[2] / "golden"))
import ref_np

THETA, DIM = 10000.0, 16
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 256},
}


def model_with(kind: str) -> Any:
    parameters = {"rope_type": kind, "rope_theta": THETA, **KINDS[kind]}
    return tiny_model(rope_parameters=parameters)


def reference_speeds(kind: str) -> np.ndarray:
    given = KINDS[kind]
    original = given.get("original_max_position_embeddings", 8192)
    name = "none" if kind == "default" else kind
    return ref_np.inv_freq(THETA, DIM, name, given.get("factor", 1.0), original=original)


@pytest.mark.parametrize("kind", KINDS)
def test_speeds_are_those_of_the_formula_and_of_the_model(kind: str) -> None:
    model = model_with(kind)
    spec = geometry_of(model.config).rope.spec
    assert spec is not None and spec.rotary_dim == DIM
    np.testing.assert_allclose(spec.speeds, reference_speeds(kind), rtol=2e-6)
    assert spec.speeds == [float(speed) for speed in model.model.rotary_emb.inv_freq]
    assert spec.attention_factor == pytest.approx(model.model.rotary_emb.attention_scaling)
    assert (spec.attention_factor > 1.0) == (kind == "yarn")


def test_only_a_part_of_a_row_turns() -> None:
    config = tiny_model().config
    config.rope_parameters["partial_rotary_factor"] = 0.5
    spec = geometry_of(config).rope.spec
    assert spec is not None and spec.rotary_dim == 8
    np.testing.assert_allclose(spec.speeds, ref_np.inv_freq(THETA, 8), rtol=2e-6)
    rows = torch.randn(2, 5, DIM)
    turned = unrotate(rows, torch.arange(5), spec)
    assert torch.equal(turned[..., 8:], rows[..., 8:])
    expected = ref_np.rotate(rows.double().numpy(), -np.arange(5)[:, None] * np.array(spec.speeds))
    np.testing.assert_allclose(turned.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_keys_turned_by_the_service_are_the_models(session: Session, kind: str) -> None:
    """First-layer keys at positions 40.. are turned to 0..: what the model makes of these tokens there."""
    model = model_with(kind)
    text = tokens(70)
    with SidecarCache(model, session, 96) as cache:
        model(input_ids=text[:, 40:], past_key_values=cache, position_ids=torch.arange(40, 70)[None])
        (sequence,) = cache.book.specs(30, None, 0)
        sequence.positions = 40
        outcome = session.rerotate(
            RerotateRequest(
                cache=cache.lent.cache,
                sequence=sequence,
                rows=30,
                new_positions=0,
                angles=AngleMode.FP32_TABLE,
                act=InPlace(),
            )
        )
        assert outcome.outcome is Outcome.APPLIED, outcome.error
        fresh = model(input_ids=text[:, 40:], use_cache=True).past_key_values.layers[0]
        torch.testing.assert_close(cache.keys(0), fresh.keys, rtol=1e-5, atol=1e-5)
        assert torch.equal(cache.values(0), fresh.values)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_queries_are_turned_back(kind: str) -> None:
    model = model_with(kind)
    spec = geometry_of(model.config).rope.spec
    assert spec is not None
    before = torch.randn(1, 4, 20, DIM)
    positions = torch.arange(300, 320)
    cos, sin = model.model.rotary_emb(before, positions[None])
    half = torch.cat([-before[..., 8:], before[..., :8]], -1)
    after = before * cos[:, None] + half * sin[:, None]
    factor = spec.attention_factor  # stays in them: their products with stored keys are the model's logits
    torch.testing.assert_close(unrotate(after, positions, spec), before * factor, rtol=1e-4, atol=1e-5)
