"""Which token of the text each row of a compacted cache is."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
import numpy.typing as npt

from kvtriage import KeptSets

_LOST = "the answer to an eviction was lost: which rows it kept is not known"
_TOO_LARGE = (
    "which rows an eviction kept did not fit the service's largest answer (max_response_bytes): only how many "
    "they are is known"
)

Lists = list[list[list[npt.NDArray[np.int32]]]]


class KeptMap:
    """Token numbers of kept rows, by layer, sequence and KV head.

    Rows behind them are the tokens that came later, in order. Tokens are counted from the beginning of the
    text, also where a cache renumbers.
    """

    def __init__(self, layers: int, batch: int, heads: int) -> None:
        self._shape = (layers, batch, heads)
        self.clear()

    def clear(self) -> None:
        layers, batch, heads = self._shape
        none: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._kept: Lists = [[[none] * heads for _ in range(batch)] for _ in range(layers)]
        self._unknown = ""  # why the rows are not known any more
        self._counts: npt.NDArray[np.int32] = np.zeros(self._shape, np.int32)
        self._tokens = 0  # seen when the last eviction was made
        self.rows = 0  # kept by it: the longest list

    def counts(self) -> npt.NDArray[np.int32]:
        """Rows kept by the last eviction [layers, batch, heads], also when its answer was lost."""
        return self._counts

    def tokens_of(self, layer: int, sequence: int, head: int, rows: int) -> npt.NDArray[np.int32]:
        """Token numbers of the first `rows` rows; -1 for a row that is not in use (heads of unequal length)."""
        if self._unknown:
            raise ValueError(self._unknown)
        kept = self._kept[layer][sequence][head]
        hole = np.full(self.rows - len(kept), -1, np.int32)
        later = np.arange(self._tokens, self._tokens + max(0, rows - self.rows), dtype=np.int32)
        return np.concatenate([kept, hole, later])[:rows]

    def evicted(
        self,
        sets: list[KeptSets] | None,
        rows: int,
        kept: int,
        tokens: int,
        ledger: Seq[npt.NDArray[np.int32]] = (),
    ) -> None:
        """An eviction left `kept` of `rows` rows after `tokens` tokens.

        `sets`: one per sequence; None when the answer was lost. Then the rows are not known any more, nor
        after an answer that says only how many they are. How many they are is in `ledger` then, per sequence
        the SequenceFate.kept_rows: layer-major, one number per KV head or per layer.
        """
        layers, batch, heads = self._shape
        if sets is None:
            self._unknown = self._unknown or _LOST
            lists = [np.broadcast_to(counts.reshape(layers, -1), (layers, heads)) for counts in ledger]
            self._counts = np.stack(lists, axis=1)
        else:
            counts = [
                [[kept_sets.count_at(layer, head) for head in range(heads)] for kept_sets in sets]
                for layer in range(layers)
            ]
            self._counts = np.array(counts, np.int32)
            if not all(kept_sets.has_rows for kept_sets in sets):
                self._unknown = self._unknown or _TOO_LARGE
        if not self._unknown and sets is not None:
            self._kept = [
                [
                    [self.tokens_of(layer, b, head, rows)[sets[b].at(layer, head)] for head in range(heads)]
                    for b in range(batch)
                ]
                for layer in range(layers)
            ]
        self._tokens, self.rows = tokens, kept

    def copy(self) -> KeptMap:
        """Independent of this one; the arrays in it are never changed."""
        other = KeptMap(*self._shape)
        other._kept, other._tokens, other.rows = self._kept, self._tokens, self.rows
        other._unknown, other._counts = self._unknown, self._counts
        return other
