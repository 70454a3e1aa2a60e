"""What goes into and comes out of Session.rerotate and Session.fuse (CacheBlend).

Keys of reused chunks are turned to their new positions, and recomputed rows written over the cached ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvtriage.cache_description import Cache, TensorSpec
from kvtriage.compress import AngleMode, CopyTo, InPlace, Ints, Positions, Sequence
from kvtriage.compress_result import Outcome
from kvtriage.errors import KvtriageError


@dataclass(slots=True)
class RerotateRequest:
    cache: Cache = field(default_factory=Cache)  # its layers name their ropes
    layers: Ints = ()  # ascending indexes into CacheSpec.layers; empty: all
    sequence: Sequence = field(default_factory=Sequence)  # `positions`: where all its rows are rotated now
    first_row: int = 0  # physical rows [first_row, first_row + rows)
    rows: int = 0
    new_positions: Positions = 0  # of those rows, in order
    angles: AngleMode = AngleMode.UNSPECIFIED
    # In place; or a copy of those rows (K, V and companions) into rows 0, 1, ... of
    # `sequence.destination`, turned there.
    act: InPlace | CopyTo = field(default_factory=InPlace)


@dataclass(slots=True)
class FuseRequest:
    cache: Cache = field(default_factory=Cache)
    layers: Ints = ()  # ascending; empty: all
    sequence: Sequence = field(default_factory=Sequence)
    # Rows to overwrite, ascending: `keys` and `values` hold one row for each, in this order. None at a
    # check layer that replaces all rows.
    rows: Ints | None = None
    # Layer axis = layers of the call. Keys are rotated for their place. The cache's element type; memory
    # of its own, not of the cache.
    keys: TensorSpec | None = None
    values: TensorSpec | None = None  # None where V is a part of K's rows


@dataclass(frozen=True, slots=True)
class RowsOutcome:
    """What became of the sequence's rows."""

    # DAMAGED: some rows are half written. After a fuse the same call with the same tensors repairs them;
    # after a rerotate in place recompute the sequence, or rebuild its rows from their sources.
    outcome: Outcome
    error: KvtriageError | None = None  # None when an answer came; otherwise why none did
    kv_revision: int = 0  # when applied: send it with the next call
    rows: int = 0  # turned (rerotate) or written (fuse), when an answer came
    quarantine: int = 0  # as CompressOutcome.quarantine
