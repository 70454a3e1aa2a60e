"""A contiguous cache of one layer, for the calls of CacheBlend."""

from __future__ import annotations

from typing import Any

import kvtriage
import numpy as np
import numpy.typing as npt

HERE = kvtriage.Region.of_this_call(0)


class OneLayer:
    """A contiguous float32 cache of one layer: keys [heads, rows, elems], and values of the same shape."""

    def __init__(
        self,
        session: kvtriage.Session,
        keys: npt.NDArray[Any],
        values: npt.NDArray[Any],
        rope: kvtriage.RopeSpec | None = None,
    ) -> None:
        heads, rows, elems = keys.shape
        nbytes = keys.size * 4
        self.memory = kvtriage.HostMemory(2 * nbytes)
        self.keys = self.memory.array(keys.shape, np.float32)
        self.values = self.memory.array(keys.shape, np.float32, nbytes)
        self.keys[:], self.values[:] = keys, values
        views = [
            kvtriage.contiguous_view(HERE, at, heads, rows, elems, kvtriage.DType.F32) for at in (0, nbytes)
        ]
        layer = kvtriage.LayerSpec(
            q_heads=heads, kv_heads=heads, k=views[0], v=views[1], rope_index=1 if rope else 0
        )
        spec = kvtriage.CacheSpec([layer], [rope] if rope else [], 1)
        self.lent = session.register(kvtriage.Registration([self.memory.lend()], [spec]))
        self.sequence = kvtriage.Sequence(
            sequence_id=self.lent.caches[0].handle,  # any number that no other has
            logical_len=rows,
            physical_len=rows,
            table=[0],
            sharing=kvtriage.Sharing.ALL_PRIVATE,
        )

    @property
    def cache(self) -> kvtriage.Cache:
        return self.lent.caches[0]
