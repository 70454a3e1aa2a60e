"""Which token a row is, through evictions of evictions."""

from __future__ import annotations

import numpy as np
import pytest
from kvtriage import Granularity, KeptSets
from kvtriage.transformers.kept_map import KeptMap


def sets(*lists: list[int], granularity: Granularity = Granularity.PER_HEAD, layers: int = 1) -> KeptSets:
    return KeptSets(
        granularity,
        np.array([len(rows) for rows in lists], np.int32),
        np.concatenate([np.array(rows, np.int32) for rows in lists]),
        (2,) * layers,
    )


def test_evictions_compose() -> None:
    kept = KeptMap(layers=1, batch=1, heads=2)
    assert kept.tokens_of(0, 0, 0, 4).tolist() == [0, 1, 2, 3]
    kept.evicted([sets([0, 5, 9], [1, 2, 9])], rows=10, kept=3, tokens=10)
    assert kept.tokens_of(0, 0, 0, 5).tolist() == [0, 5, 9, 10, 11]
    kept.evicted([sets([1, 4], [0, 3])], rows=5, kept=2, tokens=12)
    assert kept.tokens_of(0, 0, 0, 3).tolist() == [5, 11, 12]
    assert kept.tokens_of(0, 0, 1, 3).tolist() == [1, 10, 12]


def test_shared_sets() -> None:
    kept = KeptMap(layers=2, batch=1, heads=2)
    kept.evicted([sets([0, 3], granularity=Granularity.PER_SEQUENCE, layers=2)], 4, 2, 4)
    assert {tuple(kept.tokens_of(layer, 0, head, 2)) for layer in range(2) for head in range(2)} == {(0, 3)}


def test_heads_of_unequal_length_have_holes() -> None:
    kept = KeptMap(layers=1, batch=1, heads=2)
    kept.evicted([sets([0, 1, 2], [4])], rows=5, kept=3, tokens=5)
    assert kept.tokens_of(0, 0, 1, 5).tolist() == [4, -1, -1, 5, 6]
    assert kept.counts().tolist() == [[[3, 1]]]


def test_a_lost_answer_is_said() -> None:
    kept = KeptMap(layers=1, batch=1, heads=2)
    kept.evicted(None, rows=10, kept=3, tokens=10, ledger=[np.array([3, 2], np.int32)])
    assert kept.rows == 3 and kept.counts().tolist() == [[[3, 2]]]
    with pytest.raises(ValueError, match="lost"):
        kept.tokens_of(0, 0, 0, 3)
    kept.clear()
    assert kept.tokens_of(0, 0, 0, 2).tolist() == [0, 1]


def test_the_ledger_has_one_number_for_heads_that_share_a_set() -> None:
    kept = KeptMap(layers=2, batch=2, heads=3)
    ledger = [np.array([5, 4], np.int32), np.array([2, 1], np.int32)]
    kept.evicted(None, rows=9, kept=5, tokens=9, ledger=ledger)
    assert kept.counts().tolist() == [[[5] * 3, [2] * 3], [[4] * 3, [1] * 3]]


def test_counts_without_rows_are_said() -> None:
    kept = KeptMap(layers=1, batch=1, heads=2)
    counts = KeptSets(Granularity.PER_HEAD, np.array([3, 1], np.int32), np.zeros(0, np.int32), (2,))
    kept.evicted([counts], rows=10, kept=3, tokens=10)
    assert kept.rows == 3 and kept.counts().tolist() == [[[3, 1]]]
    with pytest.raises(ValueError, match="max_response_bytes"):
        kept.tokens_of(0, 0, 0, 3)
    kept.evicted([sets([0, 1], [0, 2])], rows=3, kept=2, tokens=10)  # rows of unknown rows
    with pytest.raises(ValueError, match="max_response_bytes"):
        kept.copy().tokens_of(0, 0, 0, 2)
    assert kept.copy().counts().tolist() == [[[2, 2]]]


def test_a_copy_is_independent() -> None:
    kept = KeptMap(layers=1, batch=1, heads=2)
    copy = kept.copy()
    kept.evicted([sets([1], [2])], rows=3, kept=1, tokens=3)
    assert copy.tokens_of(0, 0, 0, 2).tolist() == [0, 1] and copy.rows == 0
