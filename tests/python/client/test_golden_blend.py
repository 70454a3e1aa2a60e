"""CacheBlend through the client, against the golden vectors: rotated keys, chosen rows, fused rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kvtriage
import numpy as np
import pytest
from golden_case import Golden, golden_names, ref
from one_layer import OneLayer


@pytest.fixture(scope="module")
def session(kvtriaged: str) -> Iterator[kvtriage.Session]:
    with kvtriage.PrivateService(program=kvtriaged) as service, kvtriage.connect(service.endpoint) as session:
        yield session


def rope_of(head: dict[str, Any]) -> kvtriage.RopeSpec:
    scaling = dict(head["scaling"])
    kind = scaling.pop("kind")
    if "original" in scaling:
        scaling["original_length"] = scaling.pop("original")
    kinds: dict[str, Any] = {
        "linear": kvtriage.LinearScaling,
        "llama3": kvtriage.Llama3Scaling,
        "yarn": kvtriage.YarnScaling,
    }
    return kvtriage.RopeSpec(
        pairing=kvtriage.RopePairing[head["pairing"].upper()],
        rotary_dim=head["rotary_dim"],
        rotary_offset=head["offset"],
        speeds=kvtriage.ThetaSpeeds(head["theta"], kinds[kind](**scaling) if kind in kinds else None),
    )


@pytest.mark.parametrize("mode", ["exact", "table"])
@pytest.mark.parametrize("name", golden_names("rope"))
def test_keys_are_turned_as_the_reference_turns_them(session: kvtriage.Session, name: str, mode: str) -> None:
    golden = Golden(name)
    s = golden.head["shape"]
    keys = ref.grid_values(golden.head["case_number"] * 1000 + 2, (s["Hk"], s["N"], s["d"]))
    layer = OneLayer(session, keys, keys, rope_of(golden.head))
    layer.sequence.positions = golden.array(golden.head["old"])
    outcome = session.rerotate(
        kvtriage.RerotateRequest(
            cache=layer.cache,
            sequence=layer.sequence,
            rows=s["N"],
            new_positions=golden.array(golden.head["new"]),
            angles=kvtriage.AngleMode.EXACT if mode == "exact" else kvtriage.AngleMode.FP32_TABLE,
        )
    )
    assert outcome.outcome is kvtriage.Outcome.APPLIED, outcome.error
    turned = golden.array(golden.head["old"]) != golden.array(golden.head["new"])
    assert (outcome.kv_revision, outcome.rows) == (1, turned.sum())
    wanted = next(golden.array(a["keys"]) for a in golden.head["answers"] if a["mode"] == mode)
    tolerance = golden.head["tolerance_of_norm"] * np.linalg.norm(wanted, axis=-1, keepdims=True)
    assert (np.abs(layer.keys - wanted) <= tolerance).all()
    assert (layer.values == keys).all()


def test_speeds_may_be_a_list_and_a_copy_leaves_the_source(session: kvtriage.Session) -> None:
    rows, d = 16, 8
    keys = ref.grid_values(11, (1, rows, d))
    rope = kvtriage.RopeSpec(kvtriage.RopePairing.HALF, rotary_dim=d, speeds=ref.inv_freq(1e4, d).tolist())
    source, target = OneLayer(session, keys, keys, rope), OneLayer(session, 0 * keys, keys, rope)
    source.sequence.positions = 0
    source.sequence.destination = [0]
    outcome = session.rerotate(
        kvtriage.RerotateRequest(
            cache=source.cache,
            sequence=source.sequence,
            first_row=4,
            rows=8,
            new_positions=100,
            angles=kvtriage.AngleMode.EXACT,
            act=kvtriage.CopyTo(target.cache),
        )
    )
    assert outcome.outcome is kvtriage.Outcome.APPLIED, outcome.error
    turn = ref.delta_angle(4 + np.arange(8), 100 + np.arange(8), ref.inv_freq(1e4, d))
    assert target.keys[:, :8] == pytest.approx(ref.rotate(keys[:, 4:12], turn), abs=1e-5)
    assert (source.keys == keys).all()


@pytest.mark.parametrize("name", golden_names("hkvd"))
def test_chosen_rows_and_limits_are_the_references(session: kvtriage.Session, name: str) -> None:
    golden = Golden(name)
    s, number = golden.head["shape"], golden.head["case_number"]
    shape = (s["N"], s["Hk"], s["d"])
    fresh, other = (ref.grid_values(number * 1000 + n, shape) * golden.head["factor"] for n in (3, 6))
    cached = np.where((np.arange(s["N"]) % 3 == 0)[:, None, None], other, fresh).transpose(1, 0, 2)
    layer = OneLayer(session, cached, cached)
    memory = kvtriage.HostMemory(fresh.size * 4)
    memory.array(shape, np.float32)[:] = fresh
    (region,) = session.register(kvtriage.Registration([memory.lend()])).regions
    tensor = kvtriage.dense_tensor(region, 0, kvtriage.DType.F32, 1, *shape)
    for metric in golden.head["metrics"]:
        for answer in metric["answers"]:
            relative = metric["metric"] == "relative"
            result = session.select_recompute(
                kvtriage.RecomputeRequest(
                    fresh=kvtriage.DenseRows(tensor),
                    cached=kvtriage.PagedRows(layer.cache, 0, [0]),
                    rows=s["N"],
                    suffix=golden.head["suffix"],
                    metric=kvtriage.DivergenceMetric.V_RELATIVE
                    if relative
                    else kvtriage.DivergenceMetric.V_L2,
                    ratio=answer.get("ratio"),
                    threshold=answer.get("threshold"),
                    positions=golden.array(golden.head["positions"]),
                )
            )
            expect_rows(golden, answer, result)
            if answer is golden.head["metrics"][0]["answers"][0]:
                assert result.limits.tolist() == golden.array(golden.head["limits"]).tolist()
    session.unregister([region, *layer.lent.regions])


def expect_rows(golden: Golden, answer: dict[str, Any], result: kvtriage.RecomputeResult) -> None:
    assert result.rows.tolist() == golden.array(answer["rows"]).tolist()
    assert result.hkvd_rows().tolist() == golden.array(answer["hkvd"]).tolist()
    assert result.rows[result.is_must].tolist() == golden.array(answer["must"]).tolist()
    assert (result.must, result.hkvd) == (result.is_must.sum(), len(result.hkvd_rows()))
    assert result.base == answer["base"]
    assert result.gap == pytest.approx(answer["gap"], abs=1e-4)
    assert result.divergence_share == pytest.approx(answer["share"], abs=1e-5)


def test_a_ratio_and_a_threshold_are_one_too_many(session: kvtriage.Session) -> None:
    rows = kvtriage.DenseRows(kvtriage.TensorSpec())
    with pytest.raises(kvtriage.KvtriageError) as refused:
        session.select_recompute(kvtriage.RecomputeRequest(rows, rows, ratio=0.5, threshold=1.0))
    assert refused.value.reason == "bad_argument"


@pytest.mark.parametrize("rows", [[2, 5, 11], None], ids=["partial", "full"])
def test_fused_rows_replace_exactly_the_named_ones(session: kvtriage.Session, rows: list[int] | None) -> None:
    heads, count, d = 2, 12, 8
    keys, values = ref.grid_values(21, (heads, count, d)), ref.grid_values(22, (heads, count, d))
    layer = OneLayer(session, keys, values)
    named = list(range(count)) if rows is None else rows
    fresh = np.float32(ref.grid_values(23, (2, len(named), heads, d)))  # K, V: [rows][heads][elems]
    memory = kvtriage.HostMemory(fresh.nbytes)
    memory.array(fresh.shape, np.float32)[:] = fresh
    (region,) = session.register(kvtriage.Registration([memory.lend()])).regions
    tensors = [
        kvtriage.dense_tensor(region, at, kvtriage.DType.F32, 1, len(named), heads, d)
        for at in (0, fresh[0].nbytes)
    ]
    outcome = session.fuse(
        kvtriage.FuseRequest(
            cache=layer.cache, sequence=layer.sequence, rows=rows, keys=tensors[0], values=tensors[1]
        )
    )
    assert outcome.outcome is kvtriage.Outcome.APPLIED, outcome.error
    assert (outcome.rows, outcome.kv_revision) == (len(named), 1)
    keys[:, named], values[:, named] = fresh[0].transpose(1, 0, 2), fresh[1].transpose(1, 0, 2)
    assert (layer.keys == keys).all() and (layer.values == values).all()
