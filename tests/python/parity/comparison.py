"""One comparison: a press, the policy that stands against it, and the same rule in the float64 reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import kvpress
import kvtriage
import numpy as np
import ref_np
import torch
from captured_layer import CapturedLayer
from kept_rows import KeptRows, rows_not_masked, rows_of_copies
from kvtriage import (
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
from kvtriage.compress import ScoreSource
from lent_layers import LentLayers, rows_first

Parts = dict[str, Any]  # a policy as ref_np states it
Sums = Callable[[CapturedLayer], torch.Tensor]  # [Hq, N] float32


@dataclass(frozen=True)
class Comparison:
    """Functions of the layer and of kvpress's compression ratio, the share REMOVED."""

    press: Callable[[CapturedLayer, float], kvpress.BasePress]
    policy: Callable[[CapturedLayer, float], Policy]
    parts: Callable[[CapturedLayer, float], Parts]
    source: str = (
        "none"  # what the scorer reads beside K and V: queries, queries before rope, sums, statistics
    )
    sums: Sums | None = None
    with_attentions: bool = False  # whether the press gets the attention weights
    across_heads: bool = False  # whether heads may keep different counts


def kept_by_press(what: Comparison, layer: CapturedLayer, ratio: float) -> KeptRows:
    press = what.press(layer, ratio)
    with torch.no_grad():
        keys, values = press.compress(*layer.press_arguments(what.with_attentions))
    if what.across_heads:
        return rows_not_masked(layer.module, len(layer.keys), layer.rows)
    before = torch.cat([layer.keys, layer.values], dim=-1)
    return rows_of_copies(before, torch.cat([keys[0], values[0]], dim=-1))


def kept_by_reference(what: Comparison, layer: CapturedLayer, ratio: float) -> tuple[KeptRows, np.ndarray]:
    """The kept set, and the scores [Hk, N] by which near-ties are told."""
    arrays = {name: getattr(layer, name).double().numpy() for name in ("queries", "keys", "values")}
    parts, kept_ratio = what.parts(layer, ratio), 1.0 - ratio
    if what.sums:
        score = ref_np.reduce_group(what.sums(layer).double().numpy(), len(layer.keys), "mean")
        b = ref_np.kept_count(layer.rows, kept_ratio)
        protected, _ = ref_np.protected(layer.rows, b, 0, parts["recent"])
        candidates = np.setdiff1d(np.arange(layer.rows), protected)
        kept = [np.union1d(protected, ref_np.take(head, candidates, b - len(protected))) for head in score]
        return kept, score
    result = ref_np.compress(
        parts,
        arrays["queries"],
        arrays["keys"],
        arrays["values"],
        scale=layer.scale,
        ratio=kept_ratio,
        layer_budget=parts.get("layer_budget"),
        Wo=layer.output_projection().double().numpy(),
        Qpre=layer.queries_before_rope.double().numpy(),
        inv_freq=layer.module.rotary_emb.inv_freq.double().numpy(),
    )
    score = np.broadcast_to(result["score"], layer.keys.shape[:2])
    if parts["scorer"] == "critical":
        weight = ref_np.critical_weight(
            arrays["values"], layer.output_projection().double().numpy(), len(layer.queries)
        )
        score = (score + parts["eps"]) * weight
    return result["kept"], score


def kept_by_service(
    what: Comparison, session: kvtriage.Session, layer: CapturedLayer, ratio: float
) -> KeptRows:
    extra: dict[str, torch.Tensor] = {}
    policy = what.policy(layer, ratio)
    if what.source == "queries":
        extra["queries"] = rows_first([layer.queries[:, -_window(what, layer, ratio) :]])
    elif what.source == "queries before rope":
        extra["queries"] = rows_first([layer.queries_before_rope])
    elif what.source == "sums":
        assert what.sums is not None
        extra["sums"] = what.sums(layer)[None, None]
    elif what.source == "statistics":
        mean, covariance = query_statistics(layer)
        extra["query_mean"] = mean[None, None]
        extra["query_covariance"] = rows_first([covariance])
    if what.parts(layer, ratio)["scorer"] == "critical":
        extra["output_projection"] = _projection(layer)
    rope = rope_of(layer) if what.source in ("queries before rope", "statistics") else None
    with LentLayers(session, [layer], rope=rope, **extra) as lent:
        source: ScoreSource = kvtriage.KeysOnly()
        if what.source == "queries":
            source = lent.query_window()
        elif what.source == "queries before rope":
            source = lent.query_window(kvtriage.QueryStage.BEFORE_ROPE)
        elif what.source == "sums":
            source = lent.column_sums()
        return lent.kept(policy, source)[0]


def query_statistics(layer: CapturedLayer, sinks: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean [Hq, d] and covariance [Hq, d, d] of the queries before RoPE, without the sinks."""
    queries = layer.queries_before_rope[:, sinks:].double()
    centred = queries - queries.mean(1, keepdim=True)
    covariance = centred.transpose(1, 2) @ centred / queries.shape[1]
    return queries.mean(1).float(), covariance.float()


def rope_of(layer: CapturedLayer) -> kvtriage.RopeSpec:
    speeds = layer.module.rotary_emb.inv_freq.double().tolist()
    return kvtriage.RopeSpec(kvtriage.RopePairing.HALF, rotary_dim=2 * len(speeds), speeds=speeds)


def _projection(layer: CapturedLayer) -> torch.Tensor:
    """W_O as [1, hidden, Hq, d]."""
    weight = layer.output_projection()
    return weight.view(1, len(weight), len(layer.queries), -1)


def _window(what: Comparison, layer: CapturedLayer, ratio: float) -> int:
    rows = what.parts(layer, ratio)["rows"]
    return layer.rows if rows == "all" else rows


def kept_tokens(layer: CapturedLayer, ratio: float) -> int:
    return ref_np.kept_count(layer.rows, 1.0 - ratio)


def named(name: str, ratio: float, budget: Budget | None = None, **parts: Any) -> Policy:
    """A named policy that keeps what kvpress keeps at `ratio`, with parts laid over it."""
    return Policy(name, PolicyParts(budget=budget or Budget(kept_ratio=1.0 - ratio), **parts))


def by_sums(ratio: float, recent: int = 0) -> Policy:
    """Ready column sums, averaged over the group; nothing is pooled."""
    return Policy(
        parts=PolicyParts(
            scorer=Scorer(ScorerKind.ATTENTION),
            window=Window(all=True),
            reduce=Reduce.MEAN,
            pool=Pool(PoolKind.NONE),
            protect=Protect(recent=recent),
            budget=Budget(kept_ratio=1.0 - ratio),
            granularity=Granularity.PER_HEAD,
        )
    )
