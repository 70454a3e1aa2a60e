"""Repeats a call that was refused for load."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from kvtriage._link import deadline as clock
from kvtriage.errors import Code, KvtriageError

T = TypeVar("T")

_MAX_RETRIES = 3


def _pause_of(error: KvtriageError) -> float | None:
    """Seconds to wait before it may be tried again; None when it may not.

    Only refusals that say UNHARMED and name a pause are safe and worth it.
    """
    if error.code not in (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE):
        return None
    if not (error.from_service and error.unharmed and error.retry_after_ms):
        return None
    return error.retry_after_ms / 1000


def with_retry(retry: bool, deadline: float, call: Callable[[], T]) -> T:
    """`call` makes one try and is the same call every time, its idempotency key included."""
    for _ in range(_MAX_RETRIES if retry else 0):
        try:
            return call()
        except KvtriageError as error:
            pause = _pause_of(error)
            if pause is None or pause >= clock.seconds_left(deadline):
                raise
            time.sleep(pause)
    return call()
