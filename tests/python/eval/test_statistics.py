"""Intervals against a distribution whose answer is known."""

import math

import numpy as np
import pytest
from kvtriage.eval.statistics import Interval, mean_interval, paired_interval


def test_the_interval_of_a_normal_sample_is_close_to_the_textbook_one():
    sample = np.random.default_rng(5).normal(3.0, 2.0, 400)
    interval = mean_interval(list(sample), seed=1)
    error = sample.std() / math.sqrt(sample.size)
    assert interval.mean == pytest.approx(sample.mean())
    assert interval.low == pytest.approx(sample.mean() - 1.96 * error, abs=0.1 * error)
    assert interval.high == pytest.approx(sample.mean() + 1.96 * error, abs=0.1 * error)


def test_most_intervals_cover_the_true_mean():
    source = np.random.default_rng(11)
    covered = 0
    for _ in range(200):
        interval = mean_interval(list(source.normal(0.0, 1.0, 40)), seed=2)
        covered += interval.low <= 0.0 <= interval.high
    assert 0.88 <= covered / 200 <= 0.99  # 95 % promised; the percentile bootstrap is a little narrow


def test_two_samples_are_counted_by_hand():
    # The mean of a resample of (0, 1) is 0, 1/2 or 1 with probability 1/4, 1/2, 1/4.
    interval = mean_interval([0.0, 1.0], seed=3)
    assert (interval.mean, interval.low, interval.high, interval.count) == (0.5, 0.0, 1.0, 2)
    assert mean_interval([-1.0, 0.0, 2.0, -3.0], seed=3).below == 2


def test_pairing_takes_away_what_samples_have_in_common():
    source = np.random.default_rng(17)
    common = source.normal(0.0, 10.0, 30)
    ours, theirs = common + 0.1 + source.normal(0, 0.01, 30), common
    assert paired_interval(list(ours), list(theirs), seed=0).sign == 1
    apart = mean_interval(list(ours), 0).low < mean_interval(list(theirs), 0).high
    assert apart  # unpaired intervals overlap: nothing could be said


def test_the_seed_decides():
    values = [1.0, 4.0, 2.0, 8.0, 5.0]
    assert mean_interval(values, 7) == mean_interval(values, 7)


def test_signs():
    assert Interval(-1, -2, -0.1, 5).sign == -1
    assert Interval(1, 0.1, 2, 5).sign == 1
    assert Interval(1, -0.1, 2, 5).sign == 0
    assert Interval(1, 1, 1, 1).sign == Interval(-2, -3, -1, 4).sign == 0  # a few samples say nothing


def test_what_cannot_be_averaged_is_refused():
    for values in ([], [1.0, float("nan")]):
        with pytest.raises(ValueError):
            mean_interval(values, 0)
    with pytest.raises(ValueError):
        paired_interval([1.0], [1.0, 2.0], 0)
