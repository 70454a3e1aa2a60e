"""Which ledger slots of a session are in use. The client picks the slot of every call that moves rows."""

from __future__ import annotations

import threading
from typing import final

from kvtriage._link import deadline as clock


@final
class Lease:
    """Holds a slot; given back at the end of the `with` unless `keep` was called."""

    def __init__(self, owner: LedgerSlots, slot: int) -> None:
        self._owner: LedgerSlots | None = owner
        self.slot = slot

    def keep(self) -> None:
        """The slot is never used again: a job of unknown fate may still write it."""
        self._owner = None

    def release(self) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner._release(self.slot)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class LedgerSlots:
    """Thread-safe."""

    def __init__(self, slots: int) -> None:
        self._changed = threading.Condition()
        self._free = list(range(slots))

    def acquire(self, deadline: float) -> Lease | None:
        """Waits for a free slot; None after `deadline`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._free, clock.seconds_left(deadline)):
                return None
            return Lease(self, self._free.pop(0))

    def _release(self, slot: int) -> None:
        with self._changed:
            self._free.append(slot)
            self._changed.notify()
