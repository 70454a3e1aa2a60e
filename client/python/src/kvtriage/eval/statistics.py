"""Means with paired bootstrap intervals.

Policies are compared on the same samples, and samples differ far more than policies do: so the
difference is taken within each sample, and the samples are drawn again (Efron's percentile bootstrap).
The interval says how far the mean would move with other samples of the same kind, nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
LEVEL = 0.95
FEWEST = 5


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over `count` samples and its bootstrap interval. One sample has no interval: low = high.

    `below`: samples below zero, which one extreme sample cannot move as it moves a mean.
    """

    mean: float
    low: float
    high: float
    count: int
    below: int = 0

    @property
    def sign(self) -> int:
        """-1 or 1 when the whole interval lies on that side of zero, else 0: not told apart.

        Of fewer than FEWEST samples always 0: their bootstrap is far too narrow.
        """
        if self.count < FEWEST:
            return 0
        return -1 if self.high < 0 else 1 if self.low > 0 else 0


def mean_interval(values: Sequence[float], seed: int, resamples: int = RESAMPLES) -> Interval:
    """Mean and 95 % interval of independent samples."""
    data = np.array(values, np.float64)
    if data.ndim != 1 or data.size == 0:
        raise ValueError(f"a list of samples is needed, got shape {data.shape}")
    if not np.isfinite(data).all():
        raise ValueError("a sample is not finite")
    if data.size == 1:
        return Interval(float(data[0]), float(data[0]), float(data[0]), 1, int(data[0] < 0))
    drawn = np.random.default_rng(seed).integers(0, data.size, (resamples, data.size))
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(data[drawn].mean(1), [tail, 100 - tail])
    return Interval(float(data.mean()), float(low), float(high), data.size, int((data < 0).sum()))


def paired_interval(ours: Sequence[float], theirs: Sequence[float], seed: int) -> Interval:
    """Mean and 95 % interval of `ours - theirs`, sample by sample."""
    if len(ours) != len(theirs):
        raise ValueError(f"pairs are needed: got {len(ours)} and {len(theirs)} samples")
    return mean_interval([one - other for one, other in zip(ours, theirs)], seed)
