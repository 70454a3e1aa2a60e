"""Kept sets of an answer, whatever format they travel in."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
import numpy.typing as npt

from kvtriage._messages.bad_answer import malformed
from kvtriage._messages.build import int32_array
from kvtriage.compress import KeptFormat
from kvtriage.compress_result import KeptSets
from kvtriage.policy import Granularity
from kvtriage.v1 import triage_pb2

_FIELD_OF = {KeptFormat.INDICES: "indices_le", KeptFormat.BITMAP: "bitmaps", KeptFormat.COUNTS: None}


def kept_sets_of(
    message: triage_pb2.KeptSets, kept_format: KeptFormat, rows: int, heads: tuple[int, ...]
) -> KeptSets:
    """`rows` were in the cache when the call began; `heads`: KV heads of each layer of the call.

    INTERNAL (bad_answer) when the answer is not in the format, or does not agree with itself.
    """
    counts = int32_array(message.counts_le)
    lists = _lists_for(message.granularity, heads)
    if counts is None or lists == 0 or not len(counts) == message.lists == lists:
        raise malformed("kept sets: wrong number of lists")
    if counts.min() < 0:
        raise malformed("kept sets: a negative count")
    if message.WhichOneof("sets") != _FIELD_OF[kept_format]:
        raise malformed("kept sets: not in the format asked for")
    if kept_format == KeptFormat.BITMAP:
        indices = _indices_of_bits(message.bitmaps, counts, rows)
    else:
        found = int32_array(message.indices_le)
        if found is None or (
            kept_format == KeptFormat.INDICES and int(counts.sum(dtype=np.int64)) != len(found)
        ):
            raise malformed("kept sets: counts and indices do not agree")
        indices = found
    return KeptSets(Granularity(message.granularity), counts, indices, heads)


def _indices_of_bits(bitmaps: bytes, counts: npt.NDArray[np.int32], rows: int) -> npt.NDArray[np.int32]:
    """Bit p of a list is row p, lowest bit first; every list begins a byte."""
    stride = (rows + 7) // 8
    if len(bitmaps) != len(counts) * stride:
        raise malformed("kept sets: bitmaps of a wrong size")
    bytes_of = np.frombuffer(bitmaps, np.uint8).reshape(len(counts), stride)
    bits = np.unpackbits(bytes_of, axis=1, bitorder="little")
    if bits[:, rows:].any():
        raise malformed("kept sets: a bit behind the last row")
    if not np.array_equal(bits.sum(axis=1, dtype=np.int64), counts):
        raise malformed("kept sets: counts and bits do not agree")
    first = np.arange(len(counts), dtype=np.int64) * (stride * 8)
    indices = (np.flatnonzero(bits) - np.repeat(first, counts)).astype(np.int32)
    indices.setflags(write=False)
    return indices


def _lists_for(granularity: int, heads: Seq[int]) -> int:
    if granularity == Granularity.PER_HEAD:
        return sum(heads)
    if granularity == Granularity.PER_LAYER:
        return len(heads)
    return 1 if granularity == Granularity.PER_SEQUENCE else 0
