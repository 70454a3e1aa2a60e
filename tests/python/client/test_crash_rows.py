"""The service dies while it observes, rotates or fuses: what is said of the rows is true."""

from __future__ import annotations

import signal
from collections.abc import Callable

import kvtriage
import numpy as np
import pytest
from kvtriage import Outcome
from one_layer import OneLayer
from stamped_worker import ELEMS, HEADS, LAYERS, StampedWorker

ROWS, KEPT = 100, 40
Start = Callable[..., kvtriage.PrivateService]
U, A, D = Outcome.UNCHANGED, Outcome.APPLIED, Outcome.DAMAGED

# ---- observe: two sequences that are cut back, and one between them that only counts rows -------------


def observe_request(worker: StampedWorker, queries: kvtriage.Region) -> kvtriage.ObserveRequest:
    """Queries of 0: every row looks at all rows alike, so that sums favour the oldest ones."""
    steps = [kvtriage.ObserveStep(worker.sequence(i), accumulate_only=i == 1) for i in range(3)]
    for step in steps:
        step.sequence.rows_count = ROWS
    q = kvtriage.dense_tensor(queries, 0, kvtriage.DType.F32, LAYERS, ROWS, HEADS, ELEMS)
    parts = kvtriage.PolicyParts(protect=kvtriage.Protect(recent=1), budget=kvtriage.Budget(kept_tokens=KEPT))
    return kvtriage.ObserveRequest(
        cache=worker.cache,
        policy=kvtriage.Policy("h2o", parts),
        steps=steps,
        inputs=kvtriage.ScoreInputs(
            kvtriage.QueryWindow(q, kvtriage.QueryStage.AFTER_ROPE), softmax_scale=0.5
        ),
        act=kvtriage.InPlace(),
    )


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        ("lane.after_score:kill", [U, U, U]),
        ("ledger.after_open:kill", [U, U, U]),
        ("ledger.after_moving:kill", [D, U, U]),
        ("ledger.after_done:kill:2", [A, U, U]),
        ("move.mid_rows:kill:2", [A, U, D]),
        ("ledger.after_closed:kill", [A, U, A]),
        ("rpc.before_finish:kill:3", [A, U, A]),  # the first two are the registrations
    ],
)
def test_an_observes_fates_are_true(start_service: Start, fault: str, wanted: list[Outcome]) -> None:
    service = start_service(f"--fault={fault}")
    with kvtriage.connect(service.endpoint) as session:
        worker = StampedWorker(3, ROWS)
        worker.lend(session)
        queries = kvtriage.HostMemory(LAYERS * ROWS * HEADS * ELEMS * 4)
        (region,) = session.register(kvtriage.Registration([queries.lend()])).regions
        outcome = session.observe(observe_request(worker, region))
        assert service.process.wait(10) == -signal.SIGKILL
        assert outcome.error is not None and outcome.result is None and outcome.quarantine == 0
        assert [fate.outcome for fate in outcome.fates] == wanted
        for i, fate in enumerate(outcome.fates):
            if fate.outcome is U:
                assert worker.is_untouched(i)
            if fate.outcome is A:
                assert worker.tokens(i, fate.table, KEPT) == [*range(KEPT - 1), ROWS - 1]
        assert outcome.damaged == [i + 1 for i, fate in enumerate(wanted) if fate is D]


# ---- rerotate and fuse: one layer, so one unit -----------------------------------------------------------

POINTS = [
    ("lane.job_start:kill", U),
    ("ledger.after_open:kill", U),
    ("ledger.after_moving:kill", D),
    ("{operation}.mid_rows:kill", D),
    ("ledger.after_done:kill", A),
    ("result.after_store:kill", A),
]
NOISE = np.random.default_rng(5)
KEYS, VALUES = NOISE.normal(size=(2, 2, 64, 16)).astype(np.float32)  # [heads, rows, elems]


@pytest.mark.parametrize(("fault", "wanted"), POINTS)
def test_a_rerotates_fate_is_true(start_service: Start, fault: str, wanted: Outcome) -> None:
    service = start_service(f"--fault={fault.format(operation='rerotate')}")
    with kvtriage.connect(service.endpoint) as session:
        speeds = kvtriage.ThetaSpeeds(1e4)
        rope = kvtriage.RopeSpec(kvtriage.RopePairing.HALF, rotary_dim=16, speeds=speeds)
        layer = OneLayer(session, KEYS, VALUES, rope)
        layer.sequence.positions = 0
        request = kvtriage.RerotateRequest(
            cache=layer.cache,
            sequence=layer.sequence,
            rows=64,
            new_positions=500,
            angles=kvtriage.AngleMode.EXACT,
        )
        outcome = session.rerotate(request)
        assert service.process.wait(10) == -signal.SIGKILL
        assert (outcome.outcome, outcome.quarantine) == (wanted, 0) and outcome.error is not None
        assert (layer.values == VALUES).all()
        if wanted is U:
            assert (layer.keys == KEYS).all()
        if wanted is A:
            assert outcome.kv_revision == 1 and (layer.keys != KEYS).any(-1).all()


@pytest.mark.parametrize(("fault", "wanted"), POINTS)
def test_a_fuses_fate_is_true_and_the_same_fuse_repairs_it(
    start_service: Start, fault: str, wanted: Outcome
) -> None:
    service = start_service(f"--fault={fault.format(operation='fuse')}")
    rows = [0, 5, 40, 63]
    with kvtriage.connect(service.endpoint) as session:
        layer = OneLayer(session, KEYS, VALUES)
        memory = kvtriage.HostMemory(2 * len(rows) * 2 * 16 * 4)
        fresh = memory.array((2, len(rows), 2, 16), np.float32)  # K, V: [rows][heads][elems]
        fresh[:] = NOISE.normal(size=fresh.shape)
        (region,) = session.register(kvtriage.Registration([memory.lend()])).regions
        keys, values = (
            kvtriage.dense_tensor(region, at, kvtriage.DType.F32, 1, len(rows), 2, 16)
            for at in (0, fresh[0].nbytes)
        )
        request = kvtriage.FuseRequest(
            cache=layer.cache, sequence=layer.sequence, rows=rows, keys=keys, values=values
        )
        outcome = session.fuse(request)
        assert service.process.wait(10) == -signal.SIGKILL
        assert (outcome.outcome, outcome.quarantine) == (wanted, 0)
        if wanted is U:
            assert (layer.keys == KEYS).all() and (layer.values == VALUES).all()
        service.start()
        assert session.wait_alive(2000)
        again = session.fuse(request)  # to a service that knows nothing of the first
        assert again.outcome is A, again.error
        others = np.setdiff1d(np.arange(64), rows)
        for cells, before, new in ((layer.keys, KEYS, fresh[0]), (layer.values, VALUES, fresh[1])):
            assert (cells[:, rows] == new.transpose(1, 0, 2)).all()
            assert (cells[:, others] == before[:, others]).all()
