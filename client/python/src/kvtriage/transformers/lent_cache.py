"""The one buffer of a SidecarCache, and how the service is told to find rows in it."""

from __future__ import annotations

import logging
import threading

import torch

from kvtriage import (
    Access,
    Cache,
    CacheSpec,
    CallOptions,
    DType,
    KvtriageError,
    LayerKind,
    LayerSpec,
    Region,
    Registration,
    RopePairing,
    RopeSpec,
    Session,
    ViewSpec,
    bytes_of,
)
from kvtriage.transformers.lent_tensor import LentTensor
from kvtriage.transformers.model_geometry import ModelGeometry

logger = logging.getLogger("kvtriage.transformers")

_CALL = CallOptions()


class LentCache:
    """Keys and values [layers, 2, batch, kv_heads, capacity, head_dim], lent once, never moved.

    Sequence b of the batch is block b. `lend` takes further tensors that calls read, until `close`.
    """

    def __init__(
        self,
        session: Session,
        geometry: ModelGeometry,
        batch: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (geometry.layers, 2, batch, geometry.kv_heads, capacity, geometry.head_dim)
        memory = LentTensor(shape, dtype, device)
        self.session = session
        self.tensor = memory.tensor
        registered = session.register(
            Registration([memory.lend()], [cache_spec(geometry, batch, capacity, memory.dtype)])
        )
        self.cache: Cache = registered.caches[0]
        self._regions: list[Region] = list(registered.regions)

    def lend(self, memory: LentTensor, call: CallOptions = _CALL) -> Region:
        """Registers memory that the service only reads."""
        region = self.session.register(Registration([memory.lend(Access.READ)]), call).regions[0]
        self._regions.append(region)
        return region

    def close(self) -> None:
        """The service unmaps everything; when this returns the memory may be freed. After an error: again."""
        if self._regions:
            self.session.unregister(self._regions, [self.cache])
            self._regions = []


def give_back(lent: LentCache, sequence_ids: list[int]) -> None:
    """Of a cache that was dropped without close(). A finalizer runs between any two instructions of any
    thread, also of one that holds the session's locks: so a thread of its own does the work."""

    def close() -> None:
        try:
            lent.close()
            if lent.session.alive:
                logger.warning("a cache was dropped without close(): its memory was given back now")
                lent.session.release_sequences(sequence_ids)
        except KvtriageError as error:
            logger.error("a cache that was dropped was not given back: %s", error)

    threading.Thread(target=close, name="kvtriage-give-back", daemon=True).start()


def cache_spec(geometry: ModelGeometry, batch: int, capacity: int, dtype: DType) -> CacheSpec:
    """The description of the buffer, as region 0 of a registration."""
    elem = bytes_of(dtype)
    slot = elem * geometry.head_dim
    head = slot * capacity
    block = head * geometry.kv_heads
    plane = block * batch  # keys, or values, of one layer

    def view(number: int) -> ViewSpec:
        return ViewSpec(
            region=Region.of_this_call(0),
            offset=number * plane,
            block_stride=block,
            head_stride=head,
            slot_stride=slot,
            elem_stride=elem,
            num_blocks=batch,
            block_slots=capacity,
            heads=geometry.kv_heads,
            row_elems=geometry.head_dim,
            dtype=dtype,
        )

    ropes = _ropes(geometry)
    layers = [
        LayerSpec(
            kind=LayerKind.FULL,
            layer_index=index,
            q_heads=geometry.q_heads,
            kv_heads=geometry.kv_heads,
            k=view(2 * index),
            v=view(2 * index + 1),
            rope_index=(1 if geometry.turning_layers[index] else len(ropes)) if ropes else 0,
        )
        for index in range(geometry.layers)
    ]
    return CacheSpec(layers=layers, ropes=ropes, num_layers=geometry.layers)


def _ropes(geometry: ModelGeometry) -> list[RopeSpec]:
    """The model's rotation; and one that turns nothing, for layers without positions."""
    if geometry.rope.spec is None:
        return []
    still = [] if all(geometry.turning_layers) else [RopeSpec(RopePairing.HALF, rotary_dim=0)]
    return [geometry.rope.spec, *still]
