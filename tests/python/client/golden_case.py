"""A golden case of `compress` (tests/golden/README.md) as memory to lend and a request to send."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import kvtriage
import numpy as np
import numpy.typing as npt
from kvtriage import ScorerKind

TESTS = Path(__file__).resolve().parents[2]
sys.path.append(str(TESTS / "golden"))
import ref_np as ref  # the reference is a script, not a package

FOLDER = TESTS / "data" / "golden"
NO_QUERIES = {
    ScorerKind.RECENCY,
    ScorerKind.RANDOM,
    ScorerKind.KEY_NORM,
    ScorerKind.KEY_DIFF,
    ScorerKind.LAG_KV,
}
SCORERS = {
    "attention": ScorerKind.ATTENTION,
    "value": ScorerKind.OBC_VALUE,
    "key": ScorerKind.OBC_KEY,
    "joint": ScorerKind.OBC_JOINT,
    "drop": ScorerKind.DROP,
    "vatp": ScorerKind.VATP,
    "critical": ScorerKind.CRITICAL,
    "key_norm": ScorerKind.KEY_NORM,
    "key_diff": ScorerKind.KEY_DIFF,
    "lagkv": ScorerKind.LAG_KV,
    "expected": ScorerKind.EXPECTED_ATTENTION,
    "recency": ScorerKind.RECENCY,
    "random": ScorerKind.RANDOM,
}
GRANULARITIES = {
    "head": kvtriage.Granularity.PER_HEAD,
    "layer": kvtriage.Granularity.PER_LAYER,
    "sequence": kvtriage.Granularity.PER_SEQUENCE,
}


class Golden:
    """A file: `head` is its JSON."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.head: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
        self._bytes = (FOLDER / f"{name}.bin").read_bytes()

    def array(self, number: int) -> npt.NDArray[Any]:
        blob = self.head["blobs"][number]
        kind = {"f64": "<f8", "i32": "<i4"}[blob["dtype"]]
        count = int(np.prod(blob["shape"]))
        return np.frombuffer(self._bytes, kind, count, blob["offset"]).reshape(blob["shape"])

    def lists(self, where: dict[str, int]) -> list[set[int]]:
        counts, rows = self.array(where["counts"]), self.array(where["rows"])
        return [set(part.tolist()) for part in np.split(rows, np.cumsum(counts)[:-1])]

    def answer(self, source: str) -> dict[str, Any] | None:
        """What holds for inputs of this source; None when there is nothing."""
        answers: list[dict[str, Any]] = self.head["answers"]
        return next((answer for answer in answers if source in answer["sources"]), None)


def golden_names(operation: str) -> list[str]:
    heads = [(path.stem, json.loads(path.read_text())) for path in sorted(FOLDER.glob("*.json"))]
    return [name for name, head in heads if head["operation"] == operation]


class Arena:
    """Tensors side by side in one piece of memory that can be lent."""

    def __init__(self) -> None:
        self._tensors: list[tuple[int, npt.NDArray[Any]]] = []
        self._end = 0

    def put(self, array: npt.NDArray[Any]) -> int:
        """Its offset, a multiple of 64."""
        offset = self._end
        self._tensors.append((offset, np.ascontiguousarray(array)))
        self._end = -(-(offset + array.nbytes) // 64) * 64
        return offset

    def rows(self, array: npt.NDArray[Any]) -> kvtriage.TensorSpec:
        """A float32 input of [layers, rows, heads, elems]."""
        offset = self.put(array.astype(np.float32))
        layers, rows, heads, elems = array.shape
        region = kvtriage.Region.of_this_call(0)
        return kvtriage.dense_tensor(region, offset, kvtriage.DType.F32, layers, rows, heads, elems)

    def memory(self) -> kvtriage.HostMemory:
        memory = kvtriage.HostMemory(self._end)
        for offset, array in self._tensors:
            memory.array(array.shape, array.dtype, offset)[...] = array
        return memory


class Case:
    """Inputs and policy of a golden file, scored from `source` ("query", "given-f32", "none", ...)."""

    def __init__(self, golden: Golden, source: str) -> None:
        self.golden, self.source = golden, source
        self.shape = golden.head["shape"]
        self.layers = [self._inputs(layer) for layer in range(golden.head["layers"])]
        self.arena = Arena()
        self.spec = self._describe()
        self.inputs = self._score_inputs()
        self.memory = self.arena.memory()

    def request(self, lent: kvtriage.Registered) -> kvtriage.CompressRequest:
        """`lent` is what registering the memory and the description gave."""
        rows, window = self.shape["N"], self.shape["W"]
        expected = self.golden.head["policy"]["scorer"] == "expected"
        with_queries = self.source in ("query", "given-f32", "before")
        protect = self.golden.head["policy"].get("explicit")
        sequence = kvtriage.Sequence(
            sequence_id=1,
            logical_len=rows,
            physical_len=rows,
            table=[0],
            sharing=kvtriage.Sharing.ALL_PRIVATE,
            rows_count=(rows if expected else window) if with_queries else 0,
            positions=0 if expected else None,
        )
        if protect is not None:
            sequence.protect = kvtriage.RowLists(GRANULARITIES[protect["granularity"]], protect["lists"])
        measured = "head_quality" in self.golden.head["answers"][0]
        return kvtriage.CompressRequest(
            cache=lent.caches[0],
            sequences=[sequence],
            policy=policy_of(self.golden.head["policy"]),
            inputs=with_region(self.inputs, lent.regions[0]),
            measure=kvtriage.Measure(measured, measured, measured),
        )

    def _inputs(self, layer: int) -> dict[str, Any]:
        s, head = self.shape, self.golden.head
        case = head["case_number"] + 1000 * layer
        made = ref.make_inputs(
            case, s["Hq"], s["Hk"], s["N"], s["W"], s["dk"], s["dv"], s.get("hidden", 0), head["knobs"]
        )
        if head["policy"]["scorer"] == "expected":
            made["Qpre"] = ref.grid_values(case * 1000 + 7, (s["Hq"], s["N"], s["dk"]))
        if head.get("v_in_k"):
            made["V"] = made["K"][..., : s["dv"]]
        if "fp8" in head:
            self._use_fp8(made, case)
        return made

    def _use_fp8(self, made: dict[str, Any], case: int) -> None:
        """Codes as stored, and the numbers that they mean."""
        fp8 = self.golden.head["fp8"]
        for stream, name, scale in ((2, "K", fp8["k_scale"]), (3, "V", fp8["v_scale"])):
            shape = made[name].shape
            outputs = ref.splitmix64(case * 1000 + stream, np.arange(made[name].size)).reshape(shape)
            codes = (outputs & np.uint64(0xBF)).astype(np.uint8)
            heads, rows = np.indices(shape[:2])
            scales = scale * (1.0 + (heads + rows) % 3 if fp8["per_row"] else np.ones(shape[:2]))
            made[name + "codes"], made[name + "scales"] = codes, scales.astype(np.float32)
            made[name] = ref.from_fp8(codes, fp8["format"]) * scales[..., None]

    def _describe(self) -> kvtriage.CacheSpec:
        head, s = self.golden.head, self.shape
        layers = []
        for number, made in enumerate(self.layers):
            logits = head.get("logits", {})
            kind = kvtriage.LayerKind.ALIBI if "alibi_slopes" in logits else kvtriage.LayerKind.FULL
            latent = bool(head.get("v_in_k"))
            layers.append(
                kvtriage.LayerSpec(
                    kind=kvtriage.LayerKind.MLA if latent else kind,
                    layer_index=head["first_layer"] + number,
                    q_heads=s["Hq"],
                    kv_heads=s["Hk"],
                    k=self._view(made, "K"),
                    v=kvtriage.ViewSpec() if latent else self._view(made, "V"),
                    v_in_k=kvtriage.Slice(0, s["dv"]) if latent else None,
                    position_aware=kind is kvtriage.LayerKind.ALIBI,
                    rope_index=1 if "Qpre" in made else 0,
                )
            )
        speeds = kvtriage.ThetaSpeeds(1e4)
        rope = kvtriage.RopeSpec(kvtriage.RopePairing.HALF, rotary_dim=s["dk"], speeds=speeds)
        count = head.get("model_layers", head["first_layer"] + len(layers))
        return kvtriage.CacheSpec(layers, [rope] if "Qpre" in self.layers[0] else [], count)

    def _view(self, made: dict[str, Any], name: str) -> kvtriage.ViewSpec:
        heads, rows, elems = made[name].shape
        region = kvtriage.Region.of_this_call(0)
        fp8 = self.golden.head.get("fp8")
        if fp8 is None:
            offset = self.arena.put(made[name].astype(np.float32))
            return kvtriage.contiguous_view(region, offset, heads, rows, elems, kvtriage.DType.F32)
        dtype = kvtriage.DType.F8E4M3 if fp8["format"] == "e4m3" else kvtriage.DType.F8E5M2
        view = kvtriage.contiguous_view(
            region, self.arena.put(made[name + "codes"]), heads, rows, elems, dtype
        )
        if not fp8["per_row"]:
            return replace(view, scale=fp8[name.lower() + "_scale"])
        scales = kvtriage.RowScales(
            region, self.arena.put(made[name + "scales"]), head_stride=4 * rows, slot_stride=4
        )
        return replace(view, row_scales=scales)

    def _stack(self, arrays: list[npt.NDArray[Any]]) -> kvtriage.TensorSpec:
        """[heads, rows, elems] of each layer as an input."""
        return self.arena.rows(np.stack([array.transpose(1, 0, 2) for array in arrays]))

    def _score_inputs(self) -> kvtriage.ScoreInputs:
        head, s = self.golden.head, self.shape
        logits = head.get("logits", {})
        inputs = kvtriage.ScoreInputs(logit_softcap=logits.get("softcap", 0.0))
        for field in ("alibi_slopes", "sink_logits"):
            if field in logits:
                numbers = np.asarray(logits[field]).reshape(1, 1, s["Hq"], 1)
                setattr(inputs, field, self.arena.rows(numbers))
        if s.get("hidden"):
            by_head = [m["Wo"].reshape(s["hidden"], s["Hq"], s["dv"]) for m in self.layers]
            inputs.output_projection = self.arena.rows(np.stack(by_head))
        if self.source != "none":
            inputs.softmax_scale = head["scale"]
            self._add_source(inputs, logits)
        return inputs

    def _add_source(self, inputs: kvtriage.ScoreInputs, logits: dict[str, Any]) -> None:
        if self.source == "moments":
            self._add_moments(inputs)
            return
        if self.source == "before":
            q = self._stack([made["Qpre"] for made in self.layers])
            inputs.source = kvtriage.QueryWindow(q, kvtriage.QueryStage.BEFORE_ROPE)
            return
        q = self._stack([made["Q"] for made in self.layers])
        if self.source == "query":
            inputs.source = kvtriage.QueryWindow(q, kvtriage.QueryStage.AFTER_ROPE)
            return
        at = [self._attention(made, logits) for made in self.layers]
        inputs.source = kvtriage.QueryOutput(
            q,
            kvtriage.QueryStage.AFTER_ROPE,
            self._stack([one.O for one in at]),
            self._stack([one.lse[..., None] for one in at]),
            kvtriage.LseBase.E,
        )

    def _attention(self, made: dict[str, Any], logits: dict[str, Any]) -> Any:
        rows, window = self.shape["N"], self.shape["W"]
        how: dict[str, Any] = {"scale": self.golden.head["scale"], "softcap": logits.get("softcap", 0.0)}
        if "alibi_slopes" in logits:
            slopes = np.float32(logits["alibi_slopes"])
            how["bias"] = ref.alibi_bias(slopes, ref.row_limits(window, rows), rows)
        if "sink_logits" in logits:
            how["sink_logit"] = np.float32(logits["sink_logits"]).astype(float)
        return ref.attend(made["Q"], made["K"], made["V"], **how)

    def _add_moments(self, inputs: kvtriage.ScoreInputs) -> None:
        """Mean and biased covariance of the rows behind the sinks."""
        policy = self.golden.head["policy"]
        means, covariances = [], []
        for made in self.layers:
            q = made["Qpre"][:, policy["sinks"] :]
            means.append(q.mean(1)[None])  # [1, heads, dk]
            off = q - q.mean(1, keepdims=True)
            spread = np.einsum("hia,hib->ahb", off, off) / q.shape[1]  # [dk, heads, dk]
            covariances.append(spread if policy.get("cov", True) else 0 * spread)
        inputs.query_mean = self.arena.rows(np.stack(means))
        inputs.query_covariance = self.arena.rows(np.stack(covariances))


def with_region(inputs: kvtriage.ScoreInputs, region: kvtriage.Region) -> kvtriage.ScoreInputs:
    """The same inputs with every tensor in `region`."""

    def moved(value: Any) -> Any:
        if isinstance(value, kvtriage.TensorSpec):
            return replace(value, region=region)
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: moved(getattr(value, f.name)) for f in fields(value)})
        return value

    return moved(inputs)  # type: ignore[no-any-return]


def policy_of(p: dict[str, Any]) -> kvtriage.Policy:
    """By name where the case has one, else by its parts."""
    counts = "explicit_layers" in p or "explicit_heads" in p
    budget = kvtriage.Budget(
        kept_tokens=p["kept_tokens"],
        kept_ratio=None if counts else p["kept_ratio"],
        pyramid_beta=p.get("beta"),
        adaptive_alpha=p["alpha"],
        explicit_layers=p.get("explicit_layers", ()),
        explicit_heads=p.get("explicit_heads", ()),
    )
    if p["name"]:
        return kvtriage.Policy(p["name"], kvtriage.PolicyParts(budget=budget))
    kind = SCORERS[p["scorer"]]
    scorer = kvtriage.Scorer(
        kind,
        random_key=p["random_key"],
        lag=p.get("lag", 0),
        first_stage=p.get("first_stage", 0.0),
        epsilon=p.get("eps", 0.0),
        future=p.get("future", 0),
    )
    queries = kind not in NO_QUERIES and kind is not ScorerKind.EXPECTED_ATTENTION
    window = kvtriage.Window(all=True) if p["window_all"] else kvtriage.Window(last=p["window_last"])
    pool = kvtriage.PoolKind[p["pool"].upper()]
    parts = kvtriage.PolicyParts(
        scorer=scorer,
        window=window if queries else None,
        reduce=kvtriage.Reduce[p["reduce"].upper()] if kind not in NO_QUERIES else None,
        pool=kvtriage.Pool(pool, p["kernel"] if pool is not kvtriage.PoolKind.NONE else 0)
        if queries
        else None,
        protect=kvtriage.Protect(p["sinks"], p["recent"], p["recent_share"]),
        budget=budget,
        granularity=GRANULARITIES[p["granularity"]],
    )
    return kvtriage.Policy(parts=parts)


def sources_of(golden: Golden) -> Iterator[str]:
    """The sources of a file that a client can offer in float32."""
    return (s for s in ("none", "query", "given-f32", "before", "moments") if golden.answer(s) is not None)
