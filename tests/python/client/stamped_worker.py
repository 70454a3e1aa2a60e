"""A worker whose rows say where they came from.

Paged K and V of several sequences with interleaved blocks, so that any wrong move, and any wrong claim about
one, shows in the bytes.
"""

from __future__ import annotations

import kvtriage
import numpy as np
import numpy.typing as npt

LAYERS, HEADS, ELEMS, BLOCK_SLOTS = 2, 2, 8, 16
PLANES = 2 * LAYERS  # K and V of each layer


def streaming_rows(rows: int, kept: int) -> list[int]:
    """What streaming keeps of `rows`: the first 4 and the newest."""
    return [*range(4), *range(rows - (kept - 4), rows)]


class StampedWorker:
    def __init__(self, sequences: int, rows: int) -> None:
        self.sequences, self.rows = sequences, rows
        self.blocks = -(-rows // BLOCK_SLOTS) + 1  # of one sequence: one more than it needs
        shape = (PLANES, self.blocks * sequences, BLOCK_SLOTS, HEADS, ELEMS)
        self.memory = kvtriage.HostMemory(int(np.prod(shape)) * 4)
        self.cells = self.memory.array(shape, np.float32)
        self.lent: kvtriage.Registered | None = None
        self.refill()

    def refill(self) -> None:
        """All sequences as they were made."""
        place = np.arange(self.rows)
        for i in range(self.sequences):
            blocks = np.asarray(self.table(i))[place // BLOCK_SLOTS]
            self.cells[:, blocks, place % BLOCK_SLOTS] = (_stamps(i) + place[:, None])[..., None]

    def table(self, i: int) -> list[int]:
        return [j * self.sequences + i for j in range(self.blocks)]

    def sequence(self, i: int) -> kvtriage.Sequence:
        """As it was made: id i + 1."""
        return kvtriage.Sequence(
            sequence_id=i + 1,
            logical_len=self.rows,
            physical_len=self.rows,
            table=self.table(i),
            sharing=kvtriage.Sharing.ALL_PRIVATE,
        )

    def append(self, sequence: kvtriage.Sequence, i: int) -> None:
        """Writes a token behind the last row, stamped with its number."""
        row = sequence.physical_len
        block = list(sequence.table)[row // BLOCK_SLOTS]
        self.cells[:, block, row % BLOCK_SLOTS] = _stamps(i)[:, 0, :, None] + sequence.logical_len
        sequence.physical_len += 1
        sequence.logical_len += 1

    def describe(self) -> kvtriage.CacheSpec:
        """Over region 0 of the registering call."""
        layers = [
            kvtriage.LayerSpec(
                layer_index=layer,
                q_heads=HEADS,
                kv_heads=HEADS,
                k=self._view(2 * layer),
                v=self._view(2 * layer + 1),
            )
            for layer in range(LAYERS)
        ]
        return kvtriage.CacheSpec(layers=layers, num_layers=LAYERS)

    def lend(self, session: kvtriage.Session) -> None:
        what = kvtriage.Registration([self.memory.lend()], [self.describe()])
        self.lent = session.register(what)

    @property
    def cache(self) -> kvtriage.Cache:
        assert self.lent is not None
        return self.lent.caches[0]

    @property
    def region(self) -> kvtriage.Region:
        assert self.lent is not None
        return self.lent.regions[0]

    def request(self, sequences: list[kvtriage.Sequence], kept: int) -> kvtriage.CompressRequest:
        """Streaming to `kept` rows of the sequences, in place unless changed."""
        return kvtriage.CompressRequest(
            cache=self.cache,
            sequences=sequences,
            policy=kvtriage.named_policy_tokens("streaming", kept),
            act=kvtriage.InPlace(),
        )

    def tokens(self, i: int, table: npt.ArrayLike, rows: int) -> list[int]:
        """The token number of each of the first `rows` rows, where K and V of every layer and head agree."""
        place = np.arange(rows)
        held = self.cells[:, np.asarray(table)[place // BLOCK_SLOTS], place % BLOCK_SLOTS]
        tokens = held - _stamps(i)[..., None]
        assert (tokens == tokens[:1, :, :1, :1]).all(), f"sequence {i}: rows that are not of one token"
        return tokens[0, :, 0, 0].astype(int).tolist()

    def is_untouched(self, i: int) -> bool:
        return self.tokens(i, self.table(i), self.rows) == list(range(self.rows))

    def _view(self, plane: int) -> kvtriage.ViewSpec:
        _, block, slot, head, elem = self.cells.strides
        return kvtriage.ViewSpec(
            region=kvtriage.Region.of_this_call(0),
            offset=plane * self.cells.strides[0],
            block_stride=block,
            slot_stride=slot,
            head_stride=head,
            elem_stride=elem,
            num_blocks=self.blocks * self.sequences,
            block_slots=BLOCK_SLOTS,
            heads=HEADS,
            row_elems=ELEMS,
            dtype=kvtriage.DType.F32,
        )


def _stamps(i: int) -> npt.NDArray[np.float32]:
    """[plane, 1, head]: a number that no other plane, sequence or head has; exact in float32."""
    plane, head = np.meshgrid(np.arange(PLANES), np.arange(HEADS), indexing="ij")
    return (((plane * 8 + i) * HEADS + head) * 10000).astype(np.float32)[:, None, :]
