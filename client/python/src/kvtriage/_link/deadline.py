"""Deadlines are moments of the monotonic clock, in seconds."""

from __future__ import annotations

import time


def after_ms(milliseconds: float) -> float:
    return time.monotonic() + milliseconds / 1000


def seconds_left(deadline: float) -> float:
    """Never below 0."""
    return max(0.0, deadline - time.monotonic())


def passed(deadline: float) -> bool:
    return time.monotonic() >= deadline
