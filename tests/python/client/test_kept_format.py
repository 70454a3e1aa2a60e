"""Kept sets as indices, as bits and as mere counts."""

from __future__ import annotations

import kvtriage
import numpy as np
import pytest
from kvtriage import Granularity, KeptFormat, Outcome
from kvtriage._messages.kept_sets import kept_sets_of
from kvtriage.v1 import triage_pb2
from stamped_worker import StampedWorker, streaming_rows

ROWS, KEPT = 100, 37
HEADS = (2, 1)
ROWS_BY_LIST = [[5], [0, 6], [1, 2, 9]]  # of 10: two bytes a list
BITS = bytes([0x20, 0x00, 0x41, 0x00, 0x06, 0x02])


def message(kept_format: KeptFormat, **changes: object) -> triage_pb2.KeptSets:
    fields: dict[str, object] = {
        "granularity": Granularity.PER_HEAD,
        "lists": 3,
        "counts_le": np.array([1, 2, 3], "<i4").tobytes(),
    }
    if kept_format is KeptFormat.INDICES:
        fields["indices_le"] = np.concatenate(ROWS_BY_LIST).astype("<i4").tobytes()
    elif kept_format is KeptFormat.BITMAP:
        fields["bitmaps"] = BITS
    return triage_pb2.KeptSets(**(fields | changes))  # type: ignore[arg-type]


def test_bits_become_the_same_lists() -> None:
    for kept_format in (KeptFormat.INDICES, KeptFormat.BITMAP):
        sets = kept_sets_of(message(kept_format), kept_format, 10, HEADS)
        assert [rows.tolist() for rows in sets.lists] == ROWS_BY_LIST
        assert sets.indices.dtype == np.int32 and not sets.indices.flags.writeable
        assert sets.at(0, 1).tolist() == [0, 6] and sets.count_at(1, 0) == 3 and sets.has_rows


def test_counts_come_without_lists() -> None:
    sets = kept_sets_of(message(KeptFormat.COUNTS), KeptFormat.COUNTS, 10, HEADS)
    assert sets.lists == [] and not sets.has_rows
    assert sets.counts.tolist() == [1, 2, 3] and sets.count_at(0, 1) == 2
    with pytest.raises(ValueError, match="COUNTS"):
        sets.at(0, 1)
    with pytest.raises(IndexError):
        sets.count_at(1, 1)


@pytest.mark.parametrize("seed", range(5))
def test_any_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 3000))
    kept = rng.random((3, rows)) < rng.random((3, 1))
    sets = kept_sets_of(
        message(
            KeptFormat.BITMAP,
            counts_le=kept.sum(axis=1).astype("<i4").tobytes(),
            bitmaps=b"".join(np.packbits(row, bitorder="little").tobytes() for row in kept),
        ),
        KeptFormat.BITMAP,
        rows,
        HEADS,
    )
    for got, wanted in zip(sets.lists, kept):
        assert got.tolist() == [row for row in range(rows) if wanted[row]]


@pytest.mark.parametrize(
    ("asked", "came", "changes"),
    [
        (KeptFormat.BITMAP, KeptFormat.INDICES, {}),
        (KeptFormat.INDICES, KeptFormat.BITMAP, {}),
        (KeptFormat.COUNTS, KeptFormat.BITMAP, {}),
        (KeptFormat.BITMAP, KeptFormat.COUNTS, {}),
        (KeptFormat.BITMAP, KeptFormat.BITMAP, {"bitmaps": BITS[:-1]}),
        (KeptFormat.BITMAP, KeptFormat.BITMAP, {"bitmaps": BITS + b"\0"}),
        (KeptFormat.BITMAP, KeptFormat.BITMAP, {"bitmaps": b"\x21" + BITS[1:]}),  # one more than counted
        (KeptFormat.BITMAP, KeptFormat.BITMAP, {"bitmaps": bytes([0x21, 0, 0x01, 0, 0x06, 0x02])}),
        (KeptFormat.BITMAP, KeptFormat.BITMAP, {"bitmaps": BITS[:-1] + b"\x04"}),  # behind the last row
        (KeptFormat.COUNTS, KeptFormat.COUNTS, {"counts_le": np.array([1, -2, 3], "<i4").tobytes()}),
        (KeptFormat.INDICES, KeptFormat.INDICES, {"indices_le": bytes(4 * 5)}),
    ],
)
def test_answers_that_do_not_fit_are_refused(
    asked: KeptFormat, came: KeptFormat, changes: dict[str, bytes]
) -> None:
    with pytest.raises(kvtriage.KvtriageError) as raised:
        kept_sets_of(message(came, **changes), asked, 10, HEADS)
    assert raised.value.reason == "bad_answer"


def test_every_format_says_the_same(session: kvtriage.Session) -> None:
    worker = StampedWorker(2, ROWS)
    worker.lend(session)
    request = worker.request([worker.sequence(0)], KEPT)
    request.act = kvtriage.SelectOnly()
    budget = kvtriage.Budget(kept_tokens=KEPT)
    request.policy = kvtriage.Policy("keydiff", kvtriage.PolicyParts(budget=budget))
    found = {}
    for kept_format in KeptFormat:
        request.kept_format = kept_format
        found[kept_format] = session.compress(request).one_result().kept_sets
    wanted = [rows.tolist() for rows in found[KeptFormat.INDICES].lists]
    assert [rows.tolist() for rows in found[KeptFormat.BITMAP].lists] == wanted
    assert found[KeptFormat.COUNTS].lists == []
    for sets in found.values():
        assert sets.counts.tolist() == [KEPT] * len(wanted)


@pytest.mark.parametrize("kept_format", [KeptFormat.BITMAP, KeptFormat.COUNTS])
def test_layer_by_layer(session: kvtriage.Session, kept_format: KeptFormat) -> None:
    worker = StampedWorker(1, ROWS)
    worker.lend(session)
    request = worker.request([worker.sequence(0)], KEPT)
    request.kept_format = kept_format
    with session.open_layers(request) as stream:
        for layer in (1, 0):
            stream.ready(layer)
            assert stream.next().result.sequences[0].kept_sets.count_at(0, 1) == KEPT
        outcome = stream.close()
    assert outcome.outcome is Outcome.APPLIED, outcome.error
    result = outcome.one_result()
    assert worker.tokens(0, result.table, KEPT) == streaming_rows(ROWS, KEPT)
    lists = [rows.tolist() for rows in result.kept_sets.lists]
    assert lists == ([streaming_rows(ROWS, KEPT)] * 4 if kept_format is KeptFormat.BITMAP else [])


# 4 lists of 300,000 indices are 4.8 MB; as bits 155 kB.
def test_what_is_too_large_as_indices_fits_as_bits(session: kvtriage.Session) -> None:
    rows, kept = 310_000, 300_000
    worker = StampedWorker(1, rows)
    worker.lend(session)
    request = worker.request([worker.sequence(0)], kept)
    request.act = kvtriage.SelectOnly()
    refused = session.compress(request)
    assert refused.outcome is Outcome.UNCHANGED and refused.error is not None
    assert refused.error.reason == "result_too_large"
    request.kept_format = KeptFormat.BITMAP
    sets = session.compress(request).one_result().kept_sets
    assert all(np.array_equal(rows_, streaming_rows(rows, kept)) for rows_ in sets.lists)
