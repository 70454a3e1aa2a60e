"""What goes into and comes out of Session.select_recompute: which rows of a glued sequence to recompute.

Row numbers are absolute rows of the whole sequence.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvtriage.cache_description import Cache, TensorSpec
from kvtriage.compress import Ints, Positions
from kvtriage.compress_result import Timing
from kvtriage.group import Group


@dataclass(frozen=True, slots=True)
class DenseRows:
    tensor: TensorSpec  # row r stands at index r - first_row
    first_row: int = 0


@dataclass(frozen=True, slots=True)
class PagedRows:
    """K or V of a registered cache."""

    cache: Cache
    layer: int
    table: Ints
    first_slot: int = 0
    values: bool = True  # False: keys


RowSource = DenseRows | PagedRows


class DivergenceMetric(enum.IntEnum):
    UNSPECIFIED = 0
    V_L2 = 1
    K_L2 = 2  # of keys at the same positions: re-rotate the cached ones first
    V_RELATIVE = 3


@dataclass(frozen=True, slots=True)
class PreviousHkvd:
    """Gradual filtering: what the check layer before answered. Candidates are only its HKVD rows."""

    hkvd: Ints  # RecomputeResult.hkvd_rows()
    base: int


@dataclass(frozen=True, slots=True)
class QueryGather:
    """Row i of `to` becomes selected row i of `from_`: Q, or the residual stream (one head).

    The same heads, elems and type; `to` is memory of its own.
    """

    from_: RowSource
    to: TensorSpec


@dataclass(slots=True)
class RecomputeRequest:
    fresh: RowSource
    cached: RowSource
    rows: int = 0  # of the whole sequence, prefix included
    prefix: int = 0  # first rows that are an exact prefix hit: never chosen
    suffix: int = 0  # newest rows that must be recomputed
    cached_bitmap: bytes = b""  # bit r: row r came from the cache; empty: all did
    must: Ints = ()  # explicit rows, ascending
    no_logits: bool = False  # do not force the last row
    metric: DivergenceMetric = DivergenceMetric.UNSPECIFIED
    ratio: float | None = None  # one of the two
    threshold: float | None = None
    previous: PreviousHkvd | None = None
    positions: Positions = 0  # of all rows, never decreasing
    gather: QueryGather | None = None
    group: Group | None = None  # ranks that decide together


@dataclass(frozen=True, slots=True)
class RecomputeResult:
    job_id: int
    replayed: bool
    timing: Timing
    rows: npt.NDArray[np.int32]  # must + hkvd, ascending
    limits: npt.NDArray[np.int32]  # per row: number of keys it may see
    is_must: npt.NDArray[np.bool_]  # per row
    must: int
    hkvd: int
    base: int  # candidates the ratio refers to
    gap: float  # next divergence / last one chosen
    nonfinite_rows: int
    divergence_share: float

    def hkvd_rows(self) -> npt.NDArray[np.int32]:
        """Those of `rows` that were chosen by divergence."""
        return self.rows[~self.is_must]
