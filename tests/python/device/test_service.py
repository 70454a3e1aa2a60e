"""Device memory from this process to a service and back: kept rows against the float64 reference, bytes."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import kvtriage
import numpy as np
import pytest
from kvtriage import DType, Region
from kvtriage.cuda import DeviceMemory, lend_device_memory
from stand_in import REAL, StandIn

sys.path.append(str(Path(__file__).resolve().parents[2] / "golden"))
import ref_np as ref  # a script, not a package

LAYERS, QUERY_HEADS, HEADS, ROWS, ELEMS, WINDOW, KEPT = 2, 4, 2, 96, 16, 8, 32
SCALE = 1 / np.sqrt(ELEMS)
FIRST = 4096 + 256  # of the cache in its allocation: an engine's tensors lie somewhere
PLANES = 2 * LAYERS  # K and V of each layer
CACHE = PLANES * HEADS * ROWS * ELEMS * 4


class Worker:
    """A random cache in the middle of an allocation, then the newest queries of every layer."""

    def __init__(self) -> None:
        random = np.random.default_rng(20)
        self.cells = random.standard_normal((PLANES, HEADS, ROWS, ELEMS), np.float32)
        self.queries = random.standard_normal((LAYERS, WINDOW, QUERY_HEADS, ELEMS), np.float32)
        content = self.cells.tobytes() + self.queries.tobytes()
        self.size = len(content)
        self.memory = DeviceMemory.create(0, FIRST + self.size + 1000)
        self.memory.write(0, bytes([0x5A]) * self.memory.size)
        self.memory.write(FIRST, content)

    def lend(self, session: kvtriage.Session) -> kvtriage.Registered:
        spec = lend_device_memory(self.memory.pointer + FIRST, self.size, owner=self.memory)
        return session.register(kvtriage.Registration([spec], [self._describe()]))

    def request(self, lent: kvtriage.Registered, policy: str) -> kvtriage.CompressRequest:
        queries = kvtriage.dense_tensor(lent.regions[0], CACHE, DType.F32, LAYERS, WINDOW, QUERY_HEADS, ELEMS)
        sequence = kvtriage.Sequence(
            sequence_id=1,
            logical_len=ROWS,
            physical_len=ROWS,
            table=[0],
            sharing=kvtriage.Sharing.ALL_PRIVATE,
            rows_count=WINDOW,
        )
        window = kvtriage.QueryWindow(queries, kvtriage.QueryStage.AFTER_ROPE)
        return kvtriage.CompressRequest(
            cache=lent.caches[0],
            sequences=[sequence],
            policy=kvtriage.named_policy_tokens(policy, KEPT),
            inputs=kvtriage.ScoreInputs(window, SCALE),
            act=kvtriage.InPlace(),
        )

    def kept_by_the_reference(self, policy: str, layer: int) -> list[list[int]]:
        queries = self.queries[layer].transpose(1, 0, 2).astype(np.float64)
        keys, values = self.cells[2 * layer].astype(np.float64), self.cells[2 * layer + 1].astype(np.float64)
        kept = ref.compress(policy, queries, keys, values, scale=SCALE, tokens=KEPT)["kept"]
        return [rows.tolist() for rows in kept]

    def planes(self) -> np.ndarray:
        return self.memory.read(FIRST, CACHE).view(np.float32).reshape(self.cells.shape)

    def _describe(self) -> kvtriage.CacheSpec:
        plane = HEADS * ROWS * ELEMS * 4
        region = Region.of_this_call(0)
        views = [
            kvtriage.contiguous_view(region, i * plane, HEADS, ROWS, ELEMS, DType.F32) for i in range(PLANES)
        ]
        layers = [
            kvtriage.LayerSpec(
                layer_index=i, q_heads=QUERY_HEADS, kv_heads=HEADS, k=views[2 * i], v=views[2 * i + 1]
            )
            for i in range(LAYERS)
        ]
        return kvtriage.CacheSpec(layers=layers, num_layers=LAYERS)


def expect_refused(session: kvtriage.Session, spec: kvtriage.RegionSpec) -> kvtriage.KvtriageError:
    with pytest.raises(kvtriage.KvtriageError) as raised:
        session.register(kvtriage.Registration([spec]))
    assert raised.value.from_service
    return raised.value


@pytest.mark.parametrize("policy", ["tova+obc-joint", "snapkv"])
def test_compress_in_place_keeps_the_references_rows(session: kvtriage.Session, policy: str) -> None:
    worker = Worker()
    lent = worker.lend(session)
    outcome = session.compress(worker.request(lent, policy))
    assert outcome.outcome is kvtriage.Outcome.APPLIED, outcome.error
    result = outcome.one_result()
    assert (result.kept, result.next_position) == (KEPT, ROWS)
    planes = worker.planes()
    for layer in range(LAYERS):
        wanted = worker.kept_by_the_reference(policy, layer)
        for head in range(HEADS):
            rows = result.kept_sets.at(layer, head).tolist()
            assert rows == wanted[head], f"layer {layer}, head {head}"
            for plane in (2 * layer, 2 * layer + 1):
                assert (planes[plane, head, :KEPT] == worker.cells[plane, head, rows]).all()
    # Nothing around the cache was touched.
    assert (worker.memory.read(0, FIRST) == 0x5A).all()
    assert (worker.memory.read(FIRST + worker.size) == 0x5A).all()
    assert worker.memory.read(FIRST + CACHE, worker.queries.nbytes).tobytes() == worker.queries.tobytes()
    session.unregister(lent.regions, lent.caches)


# C16: one allocation with four views; a handle opens at the base.
def test_views_of_one_allocation_are_told_apart(session: kvtriage.Session) -> None:
    step = 1 << 20
    memory = DeviceMemory.create(0, 4 * step)
    for i in range(4):
        memory.write(i * step, np.full(step, i + 1, np.uint8))
    specs = [lend_device_memory(memory.pointer + i * step, step) for i in range(4)]
    regions = session.register(kvtriage.Registration(specs)).regions
    host = kvtriage.HostMemory(step)
    twin = session.register(kvtriage.Registration([host.lend()])).regions[0]
    for i, region in enumerate(regions):
        host.array(step)[:] = i + 1
        assert session.checksum(region, 0, step) == session.checksum(twin, 0, step), f"view {i}"
    forgotten = replace(specs[2], offset=0)
    assert expect_refused(session, forgotten).reason == "fingerprint_mismatch"
    session.unregister_all()


def test_memory_that_was_freed_is_refused(session: kvtriage.Session, stand_in: StandIn) -> None:
    memory = DeviceMemory.create(0, 4096)
    spec = replace(memory.lend(), owner=None)
    del memory
    gc.collect()
    assert stand_in.count("cudaFree") == 1
    assert expect_refused(session, spec).reason == "map_failed"


def test_a_device_that_the_service_does_not_see_is_refused(
    start_device_service: Callable[..., kvtriage.PrivateService], stand_in: StandIn
) -> None:
    service = start_device_service("devices=1")
    with kvtriage.connect(service.endpoint) as session:
        error = expect_refused(session, DeviceMemory.create(1, 4096).lend())
        assert error.reason == "gpu_not_visible"


def test_lent_memory_outlives_its_owner_and_the_service(
    start_device_service: Callable[..., kvtriage.PrivateService], stand_in: StandIn
) -> None:
    service = start_device_service()
    with kvtriage.connect(service.endpoint) as session:
        memory = DeviceMemory.create(0, 8192)
        memory.write(0, bytes([7]) * 8192)
        region = session.register(kvtriage.Registration([memory.lend(4096)])).regions[0]
        del memory
        gc.collect()
        assert stand_in.count("cudaFree") == 0
        before = session.checksum(region, 0, 4096)
        os.kill(service.process.pid, signal.SIGKILL)
        service.process.wait()
        service.start()
        assert session.wait_alive(20_000), "registered again by itself"
        assert session.checksum(region, 0, 4096) == before
        session.unregister([region])
        gc.collect()
        assert stand_in.count("cudaFree") == 1


def test_the_end_of_a_session_takes_memory_back_first(
    start_device_service: Callable[..., kvtriage.PrivateService], stand_in: StandIn
) -> None:
    with kvtriage.connect(start_device_service().endpoint) as session:
        session.register(kvtriage.Registration([DeviceMemory.create(0, 4096).lend()]))
        gc.collect()
        assert stand_in.count("cudaFree") == 0
    gc.collect()
    assert stand_in.count("cudaFree") == 1


def test_the_real_device_is_used_when_asked_for() -> None:
    """What check.sh wants to hear: which driver these tests ran on."""
    name = kvtriage.cuda.list_cuda_devices()[0].name
    assert name.startswith("fake device") is not REAL
