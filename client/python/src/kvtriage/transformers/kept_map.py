"""Which token of the text each row of a compacted cache is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvtriage import KeptSets

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
        self._kept: Lists | None = [[[none] * heads for _ in range(batch)] for _ in range(layers)]
        self._tokens = 0  # seen when the last eviction was made
        self.rows = 0  # kept by it: the longest list

    def counts(self) -> npt.NDArray[np.int32]:
        """Rows kept by the last eviction [layers, batch, heads]. ValueError when they are not known."""
        return np.array(
            [[[len(rows) for rows in heads] for heads in batch] for batch in self._lists()], np.int32
        )

    def tokens_of(self, layer: int, sequence: int, head: int, rows: int) -> npt.NDArray[np.int32]:
        """Token numbers of the first `rows` rows; -1 for a row that is not in use (heads of unequal length)."""
        kept = self._lists()[layer][sequence][head]
        hole = np.full(self.rows - len(kept), -1, np.int32)
        later = np.arange(self._tokens, self._tokens + max(0, rows - self.rows), dtype=np.int32)
        return np.concatenate([kept, hole, later])[:rows]

    def evicted(self, sets: list[KeptSets] | None, rows: int, kept: int, tokens: int) -> None:
        """An eviction left `kept` of `rows` rows after `tokens` tokens.

        `sets`: one per sequence; None when the answer was lost: the rows are then not known any more.
        """
        if sets is None or self._kept is None:
            self._kept = None
        else:
            layers, batch, heads = self._shape
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
        return other

    def _lists(self) -> Lists:
        if self._kept is None:
            raise ValueError("the answer to an eviction was lost: which rows it kept is not known")
        return self._kept
