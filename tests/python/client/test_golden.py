"""The golden vectors of tests/golden, through the client: kept sets and measures as the float64 reference
has them, and after a compaction the bytes of exactly those rows."""

from __future__ import annotations

from collections.abc import Iterator

import kvtriage
import numpy as np
import pytest
from golden_case import Case, Golden, golden_names, sources_of

# Every case, from every source of attention that a client can offer.
CASES = [(name, source) for name in golden_names("compress") for source in sources_of(Golden(name))]


@pytest.fixture(scope="module")
def session(kvtriaged: str) -> Iterator[kvtriage.Session]:
    with kvtriage.PrivateService(program=kvtriaged) as service, kvtriage.connect(service.endpoint) as session:
        yield session


def expect_kept(golden: Golden, source: str, result: kvtriage.SequenceResult) -> None:
    answer = golden.answer(source)
    assert answer is not None
    exact = golden.lists(answer["exact"])
    pools = golden.lists(answer["pool"]) if "pool" in answer else [set()] * len(exact)
    if "protects" in answer:
        protects = golden.lists(answer["protects"])
    else:
        protects = [set(golden.array(answer["protect"]).tolist())] * len(exact)
    lists = result.kept_sets.lists
    assert len(lists) == len(exact)
    for kept, wanted, pool, protect in zip(lists, exact, pools, protects):
        assert (np.diff(kept) > 0).all()
        chosen = set(kept.tolist())
        assert protect <= chosen
        chosen -= protect
        # The reference's rows; rows too near the cut to tell (the pool) may stand for each other.
        assert len(chosen) == len(wanted) and wanted - pool <= chosen <= wanted | pool
    assert all(layer.trimmed == answer["trimmed"] for layer in result.layers)
    if "stages" in answer:
        assert [result.layers[0].stage1, result.layers[0].stage2] == answer["stages"]


def expect_quality(golden: Golden, source: str, quality: kvtriage.Quality) -> None:
    answer = golden.answer(source)
    assert answer is not None
    near = {"abs": golden.head["quality_tolerance"]}
    measured = zip(
        quality.head_mass_mean,
        quality.head_mass_low,
        quality.head_error,
        quality.head_error_high,
        quality.head_recall,
    )
    for got, wanted in zip(measured, golden.array(answer["head_quality"]).reshape(-1, 5), strict=True):
        assert got == pytest.approx(wanted, **near)
    whole = (quality.mass_mean, quality.mass_p5, quality.error, quality.error_p95, quality.recall_mean)
    assert whole == pytest.approx(golden.array(answer["layer_quality"]), **near)


@pytest.mark.parametrize(("name", "source"), CASES, ids=lambda word: str(word))
def test_keeps_what_the_reference_keeps(session: kvtriage.Session, name: str, source: str) -> None:
    golden = Golden(name)
    case = Case(golden, source)
    lent = session.register(kvtriage.Registration([case.memory.lend()], [case.spec]))
    outcome = session.compress(case.request(lent))
    assert outcome.error is None
    assert outcome.result is not None
    expect_kept(golden, source, outcome.one_result())
    if "head_quality" in golden.head["answers"][0]:
        expect_quality(golden, source, outcome.result.quality[0])
    session.release_sequences([1])
    session.unregister(lent.regions)


@pytest.mark.parametrize("name", ["policy-snapkv+obc-key", "policy-pyramidkv", "policy-tova", "obc-mla"])
def test_moves_the_bytes_of_the_kept_rows(session: kvtriage.Session, name: str) -> None:
    case = Case(Golden(name), "query")
    lent = session.register(kvtriage.Registration([case.memory.lend()], [case.spec]))
    request = case.request(lent)
    request.act = kvtriage.InPlace()
    result = session.compress(request).one_result()
    for number, (layer, made) in enumerate(zip(case.spec.layers, case.layers)):
        views = [(layer.k, made["K"])] + ([(layer.v, made["V"])] if layer.v_in_k is None else [])
        for view, before in views:
            now = case.memory.array(before.shape, np.float32, view.offset)
            for head in range(view.heads):
                kept = result.kept_sets.at(number, head)
                assert (now[head, : len(kept)] == before[head, kept]).all()
    session.release_sequences([1])
    session.unregister(lent.regions)
