"""What a terminal shows while a run lasts: which sample, how many cases, how long it will still take."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import TextIO


class Progress:
    """One line per finished sample. The rest is estimated from the samples of each kind that really ran."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._begin()

    def _begin(self) -> None:
        self._left: Counter[int] = Counter()
        self._ran: Counter[int] = Counter()
        self._spent: dict[int, float] = {}
        self._count = self._done = 0

    def begin(self, kinds: Iterable[int]) -> None:
        """The kind (which measure it is of) of every sample that will come."""
        self._begin()
        self._left.update(kinds)
        self._count = self._left.total()

    def sample(self, kind: int, name: str, cases: int, started: float) -> None:
        """`cases` that were measured since `started` (time.monotonic); 0: all were there already."""
        took = time.monotonic() - started
        self._done += 1
        self._left[kind] -= 1
        if cases:
            self._ran[kind] += 1
            self._spent[kind] = self._spent.get(kind, 0.0) + took
        what = f"{cases} cases in {took:.1f} s" if cases else "there already"
        line = f"{self._done}/{self._count} {name}: {what}{self._to_go()}"
        print(line, file=self._stream, flush=True)

    def _to_go(self) -> str:
        """Nothing while a kind that is left has not run yet."""
        if any(left and not self._ran[kind] for kind, left in self._left.items()):
            return ""
        seconds = sum(left * self._spent[kind] / self._ran[kind] for kind, left in self._left.items() if left)
        return f", {seconds / 60:.0f} min to go"
