"""What each scorer is given is right: the kept sets are those of the float64 reference on the model's own tensors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kvtriage import CompressOutcome, ObserveOutcome, Outcome, Policy, PolicyParts, Protect, Session, Window
from kvtriage.transformers import SidecarCache
from tiny_models import LAYERS, tiny_model, tokens

sys.path.append(str(Path(__file__).resolve().parents[2] / "golden"))
import ref_np

TOKENS = 60


def before_rope(model: Any, text: torch.Tensor) -> list[np.ndarray]:
    """Queries [q_heads, tokens, head_dim] as the layers' q_proj (and q_norm) leave them."""
    found: list[np.ndarray] = []
    with torch.no_grad():
        hooks = []
        for layer in model.model.layers:
            source = getattr(layer.self_attn, "q_norm", layer.self_attn.q_proj)
            hooks.append(source.register_forward_hook(lambda _m, _i, out: found.append(out.double().numpy())))
        model(input_ids=text, use_cache=False)
        for hook in hooks:
            hook.remove()
    heads, size = model.config.num_attention_heads, model.config.head_dim
    return [rows.reshape(-1, heads, size).transpose(1, 0, 2) for rows in found]


def reference_sets(
    cache: SidecarCache, layer: int, policy: Any, kept: int, **inputs: Any
) -> list[np.ndarray]:
    rows = {
        "Q": cache.queries(layer)[0].transpose(0, 1).double().numpy(),
        "K": cache.keys(layer)[0].double().numpy(),
        "V": cache.values(layer)[0].double().numpy(),
    }
    return ref_np.compress(policy, **rows, scale=cache.capture.softmax_scale, tokens=kept, **inputs)["kept"]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize(
    "policy",
    ["h2o", "h2o+obc-key", "h2o+drop", "vatp", "tova", "criticalkv", "expected-attention", "keydiff"],
)
def test_kept_sets_of_the_reference(session: Session, family: str, policy: str) -> None:
    model = tiny_model(family)
    text = tokens(TOKENS)
    unrotated = before_rope(model, text)
    # criticalkv: a window and protected rows of this text's size.
    small = {"rows": 8, "recent": 8} if policy == "criticalkv" else {}
    parts = PolicyParts(window=Window(last=8), protect=Protect(recent=8)) if small else PolicyParts()
    speeds = ref_np.inv_freq(model.config.rope_parameters["rope_theta"], model.config.head_dim)
    with (
        SidecarCache(model, session, 96, policy=Policy(policy, parts), query_rows=96) as cache,
        cache.attach(model),
        torch.no_grad(),
    ):
        model(input_ids=text, past_key_values=cache)
        assert cache.usable_queries == TOKENS
        expected = [
            reference_sets(
                cache,
                layer,
                ref_np.expand(policy) | small,
                24,
                Wo=model.model.layers[layer].self_attn.o_proj.weight.double().numpy(),
                Qpre=unrotated[layer],
                inv_freq=speeds,
            )
            for layer in range(LAYERS)
        ]
        assert cache.compress(kept_tokens=24).outcome is Outcome.APPLIED
        for layer in range(LAYERS):
            assert cache.original_positions(layer)[0].tolist() == [rows.tolist() for rows in expected[layer]]


@pytest.mark.parametrize("scorer", ["attention", "key"])
def test_running_scores_while_generating(session: Session, scorer: str) -> None:
    """h2o goes on from the scores of the rows that it kept: two evictions behind the prompt's."""
    model = tiny_model()
    text = tokens(80)
    policy = "h2o" if scorer == "attention" else "h2o+obc-key"
    kept = 20
    with (
        SidecarCache(model, session, 96, policy=policy, kept_tokens=kept) as cache,
        cache.attach(model),
        torch.no_grad(),
    ):
        sums = [ref_np.Accumulator(2, 0, scorer) for _ in range(LAYERS)]
        for begin, end in [(0, 50), (50, 62), (62, 73)]:
            model(input_ids=text[:, begin:end], past_key_values=cache)
            wanted = [reference_step(cache, layer, sums[layer], kept) for layer in range(LAYERS)]
            before = [cache.original_positions(layer)[0] for layer in range(LAYERS)]
            outcome = cache.evict()
            assert outcome is not None and outcome.outcome is Outcome.APPLIED, outcome
            for layer in range(LAYERS):
                expected = [before[layer][head, rows].tolist() for head, rows in enumerate(wanted[layer])]
                assert cache.original_positions(layer)[0].tolist() == expected
        assert cache.evictions == 3


def reference_step(cache: SidecarCache, layer: int, sums: Any, kept: int) -> list[np.ndarray]:
    """Adds the new rows to the sums and selects; half of the budget are the newest rows."""
    queries = cache.queries(layer)[0].transpose(0, 1).double().numpy()
    keys, values = (rows[0].double().numpy() for rows in (cache.keys(layer), cache.values(layer)))
    sums.observe(queries, keys, values, scale=cache.capture.softmax_scale)
    count = keys.shape[1]
    protected, _ = ref_np.protected(count, kept, 0, kept // 2)
    candidates = np.setdiff1d(np.arange(count), protected)
    sets = [
        np.sort(np.concatenate([protected, ref_np.take(sums.s[head], candidates, kept - len(protected))]))
        for head in range(len(sums.s))
    ]
    sums.evict(sets)
    return sets


@torch.no_grad()
def test_queries_that_do_not_join_up_are_dropped(session: Session) -> None:
    model = tiny_model()
    text = tokens(60)
    with SidecarCache(model, session, 96, query_rows=96) as cache:
        with cache.attach(model):
            model(input_ids=text[:, :30], past_key_values=cache)
            assert cache.usable_queries == 30
        model(input_ids=text[:, 30:40], past_key_values=cache)
        assert cache.usable_queries == 0
        with cache.attach(model):
            model(input_ids=text[:, 40:46], past_key_values=cache)
        assert cache.usable_queries == cache.capture.filled == 6
        newest = cache.queries(1).clone()
    with SidecarCache(model, session, 96, query_rows=96) as cache, cache.attach(model):
        model(input_ids=text[:, :46], past_key_values=cache)
        torch.testing.assert_close(cache.queries(1)[:, -6:], newest, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_expected_attention_after_renumbering(session: Session) -> None:
    """Queries of an older count of positions are left out of the statistics."""
    model = tiny_model()
    text = tokens(70)
    speeds = ref_np.inv_freq(model.config.rope_parameters["rope_theta"], model.config.head_dim)
    with (
        SidecarCache(model, session, 96, policy="expected-attention", kept_tokens=30, renumber=True) as cache,
        cache.attach(model),
    ):
        model(input_ids=text[:, :50], past_key_values=cache)
        cache.evict()
        model(input_ids=text[:, 50:], past_key_values=cache)
        turned = cache.queries(0)[0].transpose(0, 1).double().numpy()
        before_rope = ref_np.rotate(turned, -np.arange(30, 50)[:, None] * speeds)
        sinks = np.zeros((before_rope.shape[0], 4, before_rope.shape[2]))  # which are not read
        scores = ref_np.expected_attention(
            np.concatenate([sinks, before_rope], 1),
            cache.keys(0)[0].double().numpy(),
            cache.values(0)[0].double().numpy(),
            speeds,
            scale=cache.capture.softmax_scale,
            next_position=50,
        )
        tokens_of = cache.original_positions(0)[0]
        cache.evict()
        assert cache.get_seq_length() == cache.physical_len == 30
        for head, kept in enumerate(cache.original_positions(0)[0].tolist()):
            rows = np.sort(np.concatenate([np.arange(4), ref_np.take(scores[head], np.arange(4, 50), 26)]))
            assert kept == tokens_of[head, rows].tolist()


class WithoutCompress:
    """A session on which Observe works and Compress does not."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def observe(self, *args: Any) -> ObserveOutcome:
        return self._session.observe(*args)

    def compress(self, *args: Any) -> CompressOutcome:
        return CompressOutcome(Outcome.UNAVAILABLE)


@torch.no_grad()
def test_running_scores_that_miss_rows_begin_anew(
    session: Session, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that came without the cache being attached, and rows that voted and were taken back."""
    model = tiny_model()
    text = tokens(90)
    with SidecarCache(model, session, 96, policy="h2o", kept_tokens=20) as cache:
        with cache.attach(model):
            model(input_ids=text[:, :50], past_key_values=cache)
        assert cache.evictions == 1
        model(input_ids=text[:, 50:55], past_key_values=cache)
        assert cache.usable_queries == 0
        with cache.attach(model):
            model(input_ids=text[:, 55:63], past_key_values=cache)
            assert cache.usable_queries == 8
        assert cache.evictions == 2 and cache.evictions_missed == 0
        assert sum("no scores of the older rows" in record.message for record in caplog.records) == 1
        with cache.attach(model):
            model(input_ids=text[:, 63:70], past_key_values=cache)
            # They vote, but the eviction itself does not come about: the rows stay, and can be taken back.
            with monkeypatch.context() as patched:
                patched.setattr(cache._calls, "_session", WithoutCompress(session))
                assert cache.evict() is not None and cache.evictions_missed == 1
            assert cache.usable_queries == 0
            cache.crop(-3)
            model(input_ids=text[:, 67:75], past_key_values=cache)
            cache.evict()
        assert cache.evictions == 3 and cache.evictions_missed == 1 and cache.physical_len == 20
