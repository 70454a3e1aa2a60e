"""Descriptions that the golden cases do not have: opaque rows, companions, refused ropes, device memory."""

from __future__ import annotations

from dataclasses import replace

import kvtriage
import numpy as np
import pytest
from kvtriage._link.memory_ids import MemoryIds
from kvtriage._messages.cache import region_message

HERE = kvtriage.Region.of_this_call(0)
HEADS, ROWS, BYTES = 2, 32, 24
VIEW = kvtriage.ViewSpec(
    HERE, head_stride=ROWS * BYTES, slot_stride=BYTES, block_slots=ROWS, heads=HEADS, opaque_row_bytes=BYTES
)


def test_opaque_rows_and_their_companions_move_together(session: kvtriage.Session) -> None:
    """K, V and a side table: bytes that nobody scores."""
    plane = HEADS * ROWS * BYTES
    memory = kvtriage.HostMemory(3 * plane)
    cells = memory.array((3, HEADS, ROWS, BYTES))
    cells[:] = np.random.default_rng(3).integers(0, 256, cells.shape)
    before = cells.copy()
    k, v, companion = (replace(VIEW, offset=n * plane) for n in range(3))
    layer = kvtriage.LayerSpec(q_heads=HEADS, kv_heads=HEADS, k=k, v=v, companions=[companion])
    spec = kvtriage.CacheSpec([layer], num_layers=1)
    lent = session.register(kvtriage.Registration([memory.lend()], [spec]))
    sequence = kvtriage.Sequence(
        sequence_id=1, logical_len=ROWS, physical_len=ROWS, table=[0], sharing=kvtriage.Sharing.ALL_PRIVATE
    )
    outcome = session.compress(
        kvtriage.CompressRequest(
            cache=lent.caches[0],
            sequences=[sequence],
            policy=kvtriage.named_policy_tokens("streaming", 12),
            act=kvtriage.InPlace(),
        )
    )
    kept = outcome.one_result().kept_sets.at(0, 0)
    assert len(kept) == 12 and (cells[:, :, :12] == before[:, :, kept]).all()


def test_a_registration_may_use_what_is_lent_already(session: kvtriage.Session) -> None:
    memory = kvtriage.HostMemory(1 << 16)
    (region,) = session.register(kvtriage.Registration([memory.lend()])).regions
    views = [kvtriage.contiguous_view(region, at, 1, 16, 8, kvtriage.DType.F16) for at in (0, 1 << 12)]
    layer = kvtriage.LayerSpec(q_heads=1, kv_heads=1, k=views[0], v=views[1])
    (cache,) = session.register(
        kvtriage.Registration(caches=[kvtriage.CacheSpec([layer], num_layers=1)])
    ).caches
    listed = session.list_regions().caches
    assert [(one.cache, one.layers, one.regions) for one in listed] == [(cache, 1, (region,))]
    session.unregister([region])  # the cache goes with it
    assert session.list_regions() == kvtriage.MemoryList((), ())


@pytest.mark.parametrize("kind", list(kvtriage.OtherScalingKind))
def test_speeds_that_cannot_be_rotated_are_said_and_refused(
    session: kvtriage.Session, kind: kvtriage.OtherScalingKind
) -> None:
    speeds = kvtriage.ThetaSpeeds(1e4, kvtriage.OtherScaling(kind))
    rope = kvtriage.RopeSpec(kvtriage.RopePairing.HALF, rotary_dim=8, speeds=speeds)
    view = kvtriage.contiguous_view(HERE, 0, 1, 16, 8, kvtriage.DType.F32)
    layer = kvtriage.LayerSpec(q_heads=1, kv_heads=1, k=view, v=replace(view, offset=4096), rope_index=1)
    memory = kvtriage.HostMemory(8192)
    with pytest.raises(kvtriage.KvtriageError) as refused:
        session.register(kvtriage.Registration([memory.lend()], [kvtriage.CacheSpec([layer], [rope], 1)]))
    assert refused.value.reason == "rope_unsupported"


def test_a_rope_that_turns_nothing_needs_no_speeds(session: kvtriage.Session) -> None:
    view = kvtriage.contiguous_view(HERE, 0, 1, 16, 8, kvtriage.DType.F32)
    layer = kvtriage.LayerSpec(q_heads=1, kv_heads=1, k=view, v=replace(view, offset=4096), rope_index=1)
    memory = kvtriage.HostMemory(8192)
    spec = kvtriage.CacheSpec([layer], [kvtriage.RopeSpec()], 1)
    assert session.register(kvtriage.Registration([memory.lend()], [spec])).caches


def test_device_memory_needs_no_descriptor(session: kvtriage.Session) -> None:
    allocation = kvtriage.CudaAllocation(bytes(range(64)), "GPU-1", 1 << 20, 7)
    spec = kvtriage.RegionSpec(cuda=allocation, offset=256, size=4096)
    marked = replace(spec, fingerprint=kvtriage.Fingerprint(8, b"abc"))
    message = region_message(marked, ticket=0, with_fingerprint=True)
    ipc = message.cuda_ipc
    assert (ipc.handle, ipc.device_uuid, ipc.generation) == (bytes(range(64)), "GPU-1", 7)
    assert (ipc.base_offset, ipc.allocation_bytes, message.size) == (256, 1 << 20, 4096)
    assert ipc.HasField("base_offset") and ipc.exporter_pid > 0
    assert (message.fingerprint.offset, message.fingerprint.expected) == (8, b"abc")
    assert not region_message(marked, ticket=0, with_fingerprint=False).HasField("fingerprint")
    with pytest.raises(kvtriage.KvtriageError) as refused:
        session.register(kvtriage.Registration([spec]))
    assert refused.value.reason in ("no_device", "gpu_not_visible", "unsupported")


def test_handles_of_a_call_are_its_indices_and_unknown_ones_nothings() -> None:
    ids = MemoryIds()
    assert ids.of_region(kvtriage.Region.of_this_call(2)) == 3
    assert ids.of_region(kvtriage.Region(1 << 40)) == ids.of_cache(kvtriage.Cache(5)) == (1 << 64) - 1
    assert ids.region_of(77) == kvtriage.Region() and ids.cache_of(77) == kvtriage.Cache()
