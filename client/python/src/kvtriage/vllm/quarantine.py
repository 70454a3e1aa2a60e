"""Blocks that a service may still write: whose they were, and when that is over."""

from __future__ import annotations

import itertools

from kvtriage import Session


class Quarantine:
    """Numbers of our own: a session's are unique in that session only."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[Session, int]] = {}

    def enter(self, session: Session, quarantine: int) -> int:
        """`quarantine`: of a session's outcome. Never 0."""
        number = next(self._numbers)
        self._open[number] = (session, quarantine)
        return number

    def over(self) -> list[int]:
        """Those that ended since the last call. Never blocks."""
        ended = [number for number, (session, ticket) in self._open.items() if session.quiet(ticket)]
        for number in ended:
            del self._open[number]
        return ended
