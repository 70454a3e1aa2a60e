"""What a terminal shows while a run lasts: which sample, how many cases, how long it will still take."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """One line per finished sample. The rest is estimated from the samples that really ran."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._name = ""
        self._count = self._done = self._ran = 0
        self._spent = 0.0

    def begin(self, name: str, samples: int) -> None:
        self._name, self._count, self._done, self._ran, self._spent = name, samples, 0, 0, 0.0

    def sample(self, sample: str, cases: int, started: float) -> None:
        """`cases` that were measured since `started` (time.monotonic); 0: all were there already."""
        self._done += 1
        took = time.monotonic() - started
        if cases:
            self._ran += 1
            self._spent += took
        left = self._spent / self._ran * (self._count - self._done) if self._ran else 0.0
        what = f"{cases} cases in {took:.1f} s, {left:.0f} s to go" if cases else "there already"
        print(f"{self._name} {self._done}/{self._count} {sample}: {what}", file=self._stream, flush=True)
