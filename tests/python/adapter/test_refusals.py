"""What a compacted cache cannot serve is refused by name, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kvtriage import LengthRule, Session
from kvtriage.transformers import SidecarCache, UnsupportedModel
from kvtriage.transformers.model_geometry import geometry_of
from tiny_models import LAYERS, tiny_model, tokens
from transformers import (
    BloomConfig,
    DeepseekV3Config,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    T5Config,
)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (MistralConfig(), "sliding_window=4096"),
        (Gemma2Config(), "layer_types: 13 of 26 layers, the first of them layer 0"),
        (Gemma3TextConfig(), "layer_types"),
        (
            Qwen2Config(use_sliding_window=True, max_window_layers=20),
            "layer_types: 12 of 32 layers, .* layer 20",
        ),
        (DeepseekV3Config(), "kv_lora_rank"),
        (BloomConfig(), "rope_parameters"),
        (T5Config(), "is_encoder_decoder|rope_parameters"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_other_kinds_of_layers(config: Any, text: str) -> None:
    with pytest.raises(UnsupportedModel, match=text):
        geometry_of(config)


def test_a_window_without_sliding_layers_is_fine() -> None:
    assert geometry_of(MistralConfig(sliding_window=None)).layers == 32
    assert geometry_of(Gemma2Config(layer_types=["full_attention"] * 26)).head_dim == 256
    assert geometry_of(Qwen2Config()).layers == 32


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_speeds_that_depend_on_the_length(session: Session, kind: str) -> None:
    """Such keys cannot be turned, but they can be kept where they are."""
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": 10000.0, "factor": 2.0}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "original_max_position_embeddings": 512}
    model = tiny_model(rope_parameters=rope)
    with pytest.raises(UnsupportedModel, match=f"renumber.*{kind}"):
        SidecarCache(model, session, 64, renumber=True)
    with pytest.raises(UnsupportedModel, match=f"expected-attention.*{kind}"):
        SidecarCache(model, session, 64, policy="expected-attention")
    with SidecarCache(model, session, 64, policy="streaming", kept_tokens=20) as cache, cache.attach(model):
        model.generate(tokens(40), past_key_values=cache, max_new_tokens=4, do_sample=False)
        assert cache.evictions == 1
        with pytest.raises(UnsupportedModel, match=kind):
            cache.compress("expected-attention", kept_tokens=10)


def test_unknown_pairing_is_not_guessed() -> None:
    config = LlamaConfig()
    config.model_type = "somebody_elses_llama"
    assert geometry_of(config).rope.spec is None
    assert "somebody_elses_llama" in geometry_of(config).rope.problem


@pytest.mark.parametrize(
    ("setting", "value"),
    [("num_beams", 3), ("cache_implementation", "static"), ("cache_implementation", "offloaded")],
)
def test_generation_settings(session: Session, setting: str, value: Any) -> None:
    model = tiny_model()
    setattr(model.generation_config, setting, value)
    with SidecarCache(model, session, 64) as cache:
        with pytest.raises(UnsupportedModel, match=f"{setting}="), cache.attach(model):
            pass
        model.generation_config = type(model.generation_config)()
        with (
            cache.attach(model),
            SidecarCache(model, session, 64) as other,
            pytest.raises(RuntimeError, match="attached to this model already"),
            other.attach(model),
        ):
            pass
        assert model.config._attn_implementation == "sdpa"


def test_beam_search_and_reordering(session: Session) -> None:
    model = tiny_model()
    with SidecarCache(model, session, 64) as cache, cache.attach(model):
        with pytest.raises(ValueError, match="2 sequences came.*batch=1.*beam search"):
            model.generate(tokens(10), past_key_values=cache, num_beams=2, max_new_tokens=3)
        assert cache.physical_len == 0
        with pytest.raises(ValueError, match="beam search"):
            cache.reorder_cache(torch.tensor([0]))
        assert not cache.is_compileable


def test_another_model(session: Session) -> None:
    with SidecarCache(tiny_model(), session, 64) as cache:
        with (
            pytest.raises(UnsupportedModel, match="another configuration"),
            cache.attach(tiny_model(head_dim=8)),
        ):
            pass
        with (
            pytest.raises(UnsupportedModel, match=r"torch.bfloat16, the cache in torch.float32"),
            cache.attach(tiny_model(dtype=torch.bfloat16)),
        ):
            pass
        compiled = torch.compile(tiny_model())
        with pytest.raises(UnsupportedModel, match="compiled"), cache.attach(compiled):
            pass


def test_combinations(session: Session) -> None:
    model = tiny_model()
    with pytest.raises(ValueError, match="renumber needs one length"):
        SidecarCache(model, session, 64, renumber=True, lengths=LengthRule.ANY)
    with pytest.raises(ValueError, match="kept_tokens and kept_ratio"):
        SidecarCache(model, session, 64, kept_tokens=4, kept_ratio=0.1)
    with pytest.raises(ValueError, match="batch must be 1"):
        SidecarCache(model, session, 64, batch=2, policy="expected-attention")
    for wrong in [
        {"every": 0},
        {"kept_tokens": 0},
        {"kept_ratio": 0.0},
        {"kept_ratio": 40},
        {"kept_ratio": float("nan")},
        {"query_rows": -1},
    ]:
        with pytest.raises(ValueError, match="at least 1|at most 1|query_rows=-1"):
            SidecarCache(model, session, 64, **wrong)
    with pytest.raises(ValueError, match="'snapKV' is not one of the service's: .*snapkv"):
        SidecarCache(model, session, 64, policy="snapKV")
    assert session.list_regions().regions == ()


def test_unequal_lengths_are_refused_by_the_service(session: Session) -> None:
    """LengthRule.ONE: transformers has one mask for all layers."""
    model = tiny_model()
    with SidecarCache(model, session, 96, query_rows=64) as cache, cache.attach(model), torch.no_grad():
        model(input_ids=tokens(60), past_key_values=cache)
        for policy in ("adakv", "pyramidkv"):
            outcome = cache.compress(policy, kept_ratio=0.5)
            assert outcome.error is not None and outcome.error.reason == "lengths_unequal"
        assert cache.physical_len == 60
        assert len(cache.layers) == LAYERS


def test_forward_passes(session: Session) -> None:
    """What would leave a wrong text, or a graph that grows for ever, is refused before a row is written."""
    model, text = tiny_model(), tokens(40)
    with SidecarCache(model, session, 96, policy="streaming", kept_tokens=20) as cache, cache.attach(model):
        with pytest.raises(RuntimeError, match="no_grad"):
            model(input_ids=text, past_key_values=cache)
        with pytest.raises(ValueError, match="use_cache=False"):
            model.generate(text, past_key_values=cache, use_cache=False, max_new_tokens=3)
        with pytest.raises(RuntimeError, match="this cache is attached already"), cache.attach(tiny_model()):
            pass
        assert cache.physical_len == 0 and not cache.lent.tensor.requires_grad
        model.generate(text, past_key_values=cache, max_new_tokens=3, do_sample=False)
        assert cache.dropped == 20 and cache.attached_to is model
        mask = torch.ones(1, cache.logical_len + 2, dtype=torch.long)
        mask[0, 30] = 0
        with pytest.raises(ValueError, match="rows of this cache have moved"), torch.no_grad():
            model(input_ids=tokens(2), attention_mask=mask, past_key_values=cache)
        assert cache.physical_len == 22


def test_a_padded_batch_is_not_compacted(session: Session) -> None:
    model, text = tiny_model(), tokens(40, batch=2)
    mask = torch.ones_like(text)
    mask[0, :5] = 0
    with SidecarCache(model, session, 96, batch=2, policy="streaming") as cache, cache.attach(model):
        model.generate(text, attention_mask=mask, past_key_values=cache, max_new_tokens=3, do_sample=False)
        with pytest.raises(ValueError, match="this batch is padded"):
            cache.compress(kept_tokens=20)
        assert cache.compress(kept_tokens=20, select_only=True).error is None
        cache.reset()
        model.generate(text, past_key_values=cache, max_new_tokens=3, do_sample=False)
        cache.compress(kept_tokens=20)
        assert cache.physical_len == 20
