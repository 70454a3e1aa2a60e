"""Policies as messages, both ways."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvtriage._messages.build import build, int32_array, int32_bytes
from kvtriage.compress import Ints
from kvtriage.errors import bad_argument
from kvtriage.policy import (
    Budget,
    Granularity,
    Policy,
    PolicyParts,
    Pool,
    PoolKind,
    Protect,
    Reduce,
    Scorer,
    ScorerKind,
    Window,
)
from kvtriage.v1 import triage_pb2

_Obc = triage_pb2.Scorer.Obc
_OBC_FORMS = {
    ScorerKind.OBC_VALUE: _Obc.FORM_VALUE,
    ScorerKind.OBC_KEY: _Obc.FORM_KEY,
    ScorerKind.OBC_JOINT: _Obc.FORM_JOINT,
}
_OBC_KINDS = {form: kind for kind, form in _OBC_FORMS.items()}
# The message field of every kind without parameters.
_PLAIN = {
    ScorerKind.ATTENTION: "attention",
    ScorerKind.DROP: "drop",
    ScorerKind.VATP: "vatp",
    ScorerKind.RECENCY: "recency",
    ScorerKind.KEY_NORM: "key_norm",
    ScorerKind.KEY_DIFF: "key_diff",
}
_PLAIN_KINDS = {field: kind for kind, field in _PLAIN.items()}


def _scorer_message(scorer: Scorer) -> triage_pb2.Scorer:
    kinds = triage_pb2.Scorer
    kind = scorer.kind
    if kind in _PLAIN:
        message = kinds()
        getattr(message, _PLAIN[kind]).SetInParent()
        return message
    if kind in _OBC_FORMS:
        return kinds(obc=_Obc(form=_OBC_FORMS[kind]))
    if kind is ScorerKind.RANDOM:
        return kinds(random=build(kinds.Random, random_key=scorer.random_key))
    if kind is ScorerKind.CRITICAL:
        parts = build(kinds.Critical, first_stage=scorer.first_stage, epsilon=scorer.epsilon)
        return kinds(critical=parts)
    if kind is ScorerKind.LAG_KV:
        return kinds(lagkv=build(kinds.LagKv, lag=scorer.lag))
    expected = build(kinds.ExpectedAttention, future=scorer.future, epsilon=scorer.epsilon)
    return kinds(expected_attention=expected)


def _counts_message(counts: Ints, name: str) -> triage_pb2.Budget.ExplicitCounts | None:
    if len(counts) == 0:
        return None
    return triage_pb2.Budget.ExplicitCounts(counts_le=int32_bytes(counts, name))


def _budget_message(budget: Budget) -> triage_pb2.Budget:
    if budget.kept_tokens is not None and budget.kept_ratio is not None:
        raise bad_argument("a budget has kept_tokens or kept_ratio, not both", "policy.parts.budget")
    kinds = triage_pb2.Budget
    choices: dict[str, Any] = {}
    if budget.uniform_layers:
        choices["uniform_layers"] = kinds.Uniform()
    if budget.pyramid_beta is not None:
        choices["pyramid"] = build(kinds.Pyramid, beta=budget.pyramid_beta)
    if budget.uniform_heads:
        choices["uniform_heads"] = kinds.Uniform()
    if budget.adaptive_alpha is not None:
        choices["adaptive"] = build(kinds.Adaptive, alpha=budget.adaptive_alpha)
    return build(
        kinds,
        kept_tokens=budget.kept_tokens,
        kept_ratio=budget.kept_ratio,
        explicit_layers=_counts_message(budget.explicit_layers, "policy.parts.budget.explicit_layers"),
        explicit_heads=_counts_message(budget.explicit_heads, "policy.parts.budget.explicit_heads"),
        **choices,
    )


def _window_message(window: Window) -> triage_pb2.Window:
    if window.all:
        return build(triage_pb2.Window, all=triage_pb2.Window.All(), decay=window.decay)
    return build(triage_pb2.Window, last=window.last, decay=window.decay)


def _parts_message(parts: PolicyParts) -> triage_pb2.PolicyParts | None:
    """None without parts: present but empty would be a hand-made policy."""
    if parts == PolicyParts():
        return None
    chosen: dict[str, Any] = {}
    if parts.scorer is not None:
        chosen["scorer"] = _scorer_message(parts.scorer)
    if parts.window is not None:
        chosen["window"] = _window_message(parts.window)
    if parts.reduce is not None:
        chosen["reduce"] = build(triage_pb2.Reduce, kind=parts.reduce)
    if parts.pool is not None:
        chosen["pool"] = build(triage_pb2.Pool, kind=parts.pool.kind, kernel=parts.pool.kernel)
    if parts.protect is not None:
        protect = parts.protect
        chosen["protect"] = build(
            triage_pb2.Protect,
            sinks=protect.sinks,
            recent=protect.recent,
            recent_share=protect.recent_share,
        )
    if parts.budget is not None:
        chosen["budget"] = _budget_message(parts.budget)
    return build(triage_pb2.PolicyParts, granularity=parts.granularity, **chosen)


def policy_message(policy: Policy | str) -> triage_pb2.Policy:
    if isinstance(policy, str):
        return build(triage_pb2.Policy, name=policy)
    return build(triage_pb2.Policy, name=policy.name, parts=_parts_message(policy.parts))


# ---- and back ----------------------------------------------------------------------------------


def _scorer_of(message: triage_pb2.Scorer) -> Scorer | None:
    """None for a kind that is newer than this library."""
    kind = message.WhichOneof("kind")
    if kind in _PLAIN_KINDS:
        return Scorer(_PLAIN_KINDS[kind])
    if kind == "obc":
        form = _OBC_KINDS.get(message.obc.form)
        return None if form is None else Scorer(form)
    if kind == "random":
        return Scorer(ScorerKind.RANDOM, random_key=message.random.random_key)
    if kind == "critical":
        critical = message.critical
        return Scorer(ScorerKind.CRITICAL, first_stage=critical.first_stage, epsilon=critical.epsilon)
    if kind == "lagkv":
        return Scorer(ScorerKind.LAG_KV, lag=message.lagkv.lag)
    if kind == "expected_attention":
        expected = message.expected_attention
        return Scorer(ScorerKind.EXPECTED_ATTENTION, epsilon=expected.epsilon, future=expected.future)
    return None


def _counts_of(counts: triage_pb2.Budget.ExplicitCounts) -> tuple[int, ...]:
    found = int32_array(counts.counts_le)
    return tuple((found if found is not None else np.zeros(0, np.int32)).tolist())


def _budget_of(message: triage_pb2.Budget) -> Budget:
    amount = message.WhichOneof("amount")
    return Budget(
        kept_tokens=message.kept_tokens if amount == "kept_tokens" else None,
        kept_ratio=message.kept_ratio if amount == "kept_ratio" else None,
        uniform_layers=message.HasField("uniform_layers"),
        pyramid_beta=message.pyramid.beta if message.HasField("pyramid") else None,
        explicit_layers=_counts_of(message.explicit_layers),
        uniform_heads=message.HasField("uniform_heads"),
        adaptive_alpha=message.adaptive.alpha if message.HasField("adaptive") else None,
        explicit_heads=_counts_of(message.explicit_heads),
    )


def parts_of(message: triage_pb2.PolicyParts) -> PolicyParts:
    has = message.HasField
    window, pool, protect = message.window, message.pool, message.protect
    return PolicyParts(
        scorer=_scorer_of(message.scorer) if has("scorer") else None,
        window=Window(window.HasField("all"), window.last, window.decay) if has("window") else None,
        reduce=Reduce(message.reduce.kind) if has("reduce") else None,
        pool=Pool(PoolKind(pool.kind), pool.kernel) if has("pool") else None,
        protect=Protect(protect.sinks, protect.recent, protect.recent_share) if has("protect") else None,
        budget=_budget_of(message.budget) if has("budget") else None,
        granularity=Granularity(message.granularity) if message.granularity else None,
    )


def policy_of(message: triage_pb2.Policy) -> Policy:
    return Policy(message.name, parts_of(message.parts))
