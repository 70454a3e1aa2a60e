"""One prefill, many policies: compress by hand, measure, go back."""

from __future__ import annotations

import pytest
import torch
from kvtriage import Measure, Outcome, Policy, PolicyParts, Protect, Session, Window
from kvtriage.transformers import SidecarCache
from masked_reference import Evictions, reference_logits
from tiny_models import tiny_model, tokens

SNAPKV = Policy("snapkv", PolicyParts(window=Window(last=8), protect=Protect(recent=8)))
EVERY_MEASURE = Measure(retained_mass=True, output_error=True, oracle_recall=True)


@torch.no_grad()
def test_many_policies_on_one_prefill(session: Session) -> None:
    model = tiny_model()
    text = tokens(60)
    with SidecarCache(model, session, 96, query_rows=96) as cache, cache.attach(model):
        whole = model(input_ids=text[:, :50], past_key_values=cache).logits
        assert cache.usable_queries == 50 and cache.evictions == 0
        taken = cache.snapshot()
        errors = {}
        for policy in ["streaming", "h2o", "h2o+obc-joint", "tova", SNAPKV, "vatp", "criticalkv", "knorm"]:
            cache.restore(taken)
            outcome = cache.compress(policy, kept_ratio=0.3, measure=EVERY_MEASURE)
            assert outcome.outcome is Outcome.APPLIED, (policy, outcome.error)
            assert cache.physical_len == 15 and cache.logical_len == 50
            assert outcome.result is not None
            errors[str(policy)] = [quality.error for quality in outcome.result.quality]
            evictions = Evictions()
            evictions.note(cache)
            logits = model(input_ids=text[:, 50:], past_key_values=cache).logits
            expected = reference_logits(model, text, evictions)[:, 50:]
            torch.testing.assert_close(logits, expected, rtol=2e-4, atol=2e-4 * float(expected.abs().max()))
        assert all(error is not None and error > 0 for layers in errors.values() for error in layers)
        assert len({tuple(layers) for layers in errors.values()}) == len(errors)
        cache.restore(taken)
        again = model(input_ids=text[:, 50:], past_key_values=cache).logits
    full = reference_logits(model, text, Evictions())
    torch.testing.assert_close(
        torch.cat([whole, again], 1), full, rtol=2e-4, atol=2e-4 * float(full.abs().max())
    )


@torch.no_grad()
def test_select_only_leaves_the_cache_alone(session: Session) -> None:
    model = tiny_model()
    with SidecarCache(model, session, 96, policy=SNAPKV) as cache, cache.attach(model):
        model(input_ids=tokens(50), past_key_values=cache)
        before = cache.lent.tensor.clone()
        outcome = cache.compress(kept_tokens=20, select_only=True)
        assert outcome.outcome is Outcome.APPLIED
        assert torch.equal(cache.lent.tensor, before) and cache.physical_len == 50
        kept = outcome.one_result().kept_sets.at(1, 0).copy()
        assert cache.compress(kept_tokens=20).outcome is Outcome.APPLIED
        assert cache.original_positions(1)[0, 0].tolist() == kept.tolist()
        assert torch.equal(cache.keys(1)[0, 0], before[1, 0, 0, 0, torch.from_numpy(kept).long()])


def test_a_refusal_is_in_the_outcome(session: Session) -> None:
    model = tiny_model()
    with SidecarCache(model, session, 96) as cache, cache.attach(model), torch.no_grad():
        model(input_ids=tokens(50), past_key_values=cache)
        outcome = cache.compress("no-such-policy", kept_ratio=0.5)
        assert outcome.outcome is Outcome.UNCHANGED
        assert outcome.error is not None and outcome.error.reason == "policy_unknown"
        assert cache.physical_len == 50


@torch.no_grad()
def test_compress_is_refused_inside_a_forward_pass(session: Session) -> None:
    """A mask that was made before would be wrong for the rows that are left."""
    model = tiny_model()
    with SidecarCache(model, session, 96, policy=SNAPKV) as cache, cache.attach(model):
        hook = model.model.layers[-1].register_forward_hook(lambda *_: cache.compress(kept_tokens=12))
        with pytest.raises(RuntimeError, match="between two passes"):
            model(input_ids=tokens(32), past_key_values=cache)
        hook.remove()
        # The pass that failed has left nothing behind.
        assert cache.physical_len == 0
        model(input_ids=tokens(32), past_key_values=cache)
        assert cache.physical_len == 32 and cache.usable_queries == 32
