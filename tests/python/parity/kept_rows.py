"""Which rows stayed: read off a press's result, and compared with ours, ties aside."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch

KeptRows = list[np.ndarray]  # one ascending array of row numbers per KV head

# Two float32 implementations agree on the order of scores that differ by more than this share of them.
RELATIVE_GAP = 1e-4


def rows_of_copies(before: torch.Tensor, after: torch.Tensor) -> KeptRows:
    """Finds the rows [H, n, d] of `after` in `before` [H, N, d] by their bytes.

    Rows with the same bytes count as used up in ascending order.
    """
    found = []
    for old, new in zip(_row_bytes(before), _row_bytes(after), strict=True):
        places: dict[bytes, list[int]] = defaultdict(list)
        for row in reversed(range(len(old))):
            places[old[row]].append(row)
        found.append(np.sort([places[row].pop() for row in new]))
    return found


def _row_bytes(rows: torch.Tensor) -> list[list[bytes]]:
    return [[row.tobytes() for row in head] for head in rows.contiguous().view(torch.uint8).numpy()]


def rows_not_masked(module: torch.nn.Module, heads: int, rows: int) -> KeptRows:
    """What a head-wise press left: it masks keys of the module and moves nothing."""
    kept = np.ones((heads, rows), bool)
    _, head, row = (index.numpy() for index in module.masked_key_indices)
    kept[head, row] = False
    return [np.flatnonzero(kept[head]) for head in range(heads)]


def assert_same(ours: KeptRows, theirs: KeptRows, score: np.ndarray, across_heads: bool = False) -> int:
    """The same rows, but for rows whose float64 scores [H, N] are as good as equal. Returns the swaps.

    Per head the counts must agree, except `across_heads`: then the heads of the layer share the rows.
    """
    swapped = [np.setxor1d(a, b) for a, b in zip(ours, theirs, strict=True)]
    if across_heads:
        assert sum(map(len, ours)) == sum(map(len, theirs))
        groups = [np.concatenate([score[h, rows] for h, rows in enumerate(swapped)])]
    else:
        assert [len(rows) for rows in ours] == [len(rows) for rows in theirs]
        groups = [score[h, rows] for h, rows in enumerate(swapped)]
    for scores in groups:
        if len(scores):
            gap, size = np.ptp(scores), np.abs(scores).max()
            assert gap <= RELATIVE_GAP * size, (
                f"{len(scores)} rows differ; scores {gap:.3g} apart of {size:.3g}"
            )
    return sum(map(len, swapped)) // 2
