"""Reads a session's ledger (proto/wire/ledger_format.h) without trusting a byte of it.

It never reads outside the mapping, and says nothing about rows while somebody may still write them.
"""

from __future__ import annotations

import enum
import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvtriage._link.fd_socket import BoundLedger
from kvtriage.errors import Code, KvtriageError, local_error

_HEADER = struct.Struct("<4sIQIIQI28x")  # magic, version, epoch, slots, slot bytes, session id, state
_SLOT = struct.Struct("<II16sQIIII16x")  # job state, op, key, job id, units, counts/unit, two offsets
_UNIT = np.dtype([("state", "<u4"), ("layer", "<u4"), ("sequence_id", "<u8")])
_MAGIC, _VERSION, _ALIGNMENT = b"KVTL", 1, 64
_SESSION_STATE_AT, _SESSION_CLOSED = 32, 2
_JOB_FREE, _JOB_CLOSED = 0, 2
_OP_COMPRESS_LAYERS = 2
PENDING, DONE, UNHARMED = 1, 3, 4  # unit states; MOVING, 2, lies between


class Writer(enum.Enum):
    """What the caller knows about the service when it reads."""

    ACTIVE = 1  # it may still store: only a CLOSED slot counts
    QUIET = 2  # its process is gone, or the session is CLOSED: what stands there is final


class SlotState(enum.Enum):
    UNSETTLED = 1  # say nothing yet (ACTIVE only)
    UNTOUCHED = 2  # no job of this key opened the slot: not a byte of the cache was written by it
    SETTLED = 3  # `units` say what happened
    BROKEN = 4  # our key, but the rest makes no sense: assume the worst


@dataclass(frozen=True, slots=True)
class SlotReading:
    """Copies: `states`, `sequence_ids` and `counts` (kept rows) hold one row per unit."""

    state: SlotState
    states: npt.NDArray[np.uint32]
    sequence_ids: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.uint32]  # [units, counts per unit]


_NO_COUNTS = np.zeros((0, 0), np.uint32)


def _without_units(state: SlotState) -> SlotReading:
    return SlotReading(state, np.zeros(0, np.uint32), np.zeros(0, np.uint64), _NO_COUNTS)


def _bad(text: str) -> KvtriageError:
    return local_error(Code.UNAVAILABLE, "not_kvtriage", f"ledger: {text}")


def _map(bound: BoundLedger) -> mmap.mmap:
    """Read-only. The object must be long enough and sealed against shrinking, so that no read can fault."""
    try:
        if bound.bytes == 0 or os.fstat(bound.fd).st_size < bound.bytes:
            raise _bad("shorter than announced")
        if not fcntl.fcntl(bound.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            raise _bad("not sealed")
        return mmap.mmap(bound.fd, bound.bytes, mmap.MAP_SHARED, mmap.PROT_READ)
    except (OSError, ValueError) as error:
        raise _bad(f"cannot be mapped: {error}") from error
    finally:
        os.close(bound.fd)


class Ledger:
    """Thread-safe. Takes the descriptor over."""

    def __init__(self, bound: BoundLedger, session_id: int) -> None:
        """UNAVAILABLE (not_kvtriage) unless it is the ledger of that session."""
        self._memory = _map(bound)
        self._words = np.frombuffer(self._memory, "<u4", count=bound.bytes // 4)
        self._barrier = threading.Lock()
        self.slots = bound.slots
        room = (bound.bytes - _HEADER.size) // max(1, bound.slots)
        self._slot_bytes = room - room % _ALIGNMENT
        if bound.bytes < _HEADER.size or self._slot_bytes < _SLOT.size:
            raise _bad("too small for its slots")
        magic, version, epoch, slots, slot_bytes, session, _ = _HEADER.unpack_from(self._memory)
        if magic != _MAGIC or version != _VERSION:
            raise _bad("wrong magic or unknown version")
        if epoch != bound.epoch or session != session_id:
            raise _bad("of another session")
        if slots != bound.slots or slot_bytes != self._slot_bytes:
            raise _bad("wrong slot size")

    def session_closed(self) -> bool:
        """No job of this session will store anything any more."""
        return self._load_acquire(_SESSION_STATE_AT) == _SESSION_CLOSED

    def read(self, slot: int, key: bytes, writer: Writer) -> SlotReading:
        return self._read_if(slot, writer, lambda op, found, job_id: found == key)

    def read_stream(self, slot: int, job_id: int, writer: Writer) -> SlotReading:
        """Of a CompressLayers stream, which is known by the job id of its first answer."""
        return self._read_if(
            slot, writer, lambda op, key, found: op == _OP_COMPRESS_LAYERS and found == job_id
        )

    def _load_acquire(self, at: int) -> int:
        """One aligned 32-bit load; what is read after it is not older than it."""
        value = int(self._words[at // 4])
        self._fence()
        return value

    def _fence(self) -> None:
        """Python has no fences; two critical sections of one lock are one.

        Loads before the first release stay before it, loads after the second acquire stay after it.
        """
        with self._barrier:
            pass
        with self._barrier:
            pass

    def _read_if(self, slot: int, writer: Writer, is_ours: Callable[[int, bytes, int], bool]) -> SlotReading:
        if not 0 <= slot < self.slots:
            return _without_units(SlotState.BROKEN)
        begin = _HEADER.size + slot * self._slot_bytes
        job_state = self._load_acquire(begin)
        if writer is Writer.ACTIVE and job_state != _JOB_CLOSED:
            return _without_units(SlotState.UNSETTLED)
        if job_state == _JOB_FREE:
            return _without_units(SlotState.UNTOUCHED)
        if job_state > _JOB_CLOSED:
            return _without_units(SlotState.BROKEN)
        _, op, key, job_id, units, per_unit, units_off, counts_off = _SLOT.unpack_from(self._memory, begin)
        if not is_ours(op, key, job_id):
            # Another call's. With an active service ours may still come.
            quiet = writer is Writer.QUIET
            return _without_units(SlotState.UNTOUCHED if quiet else SlotState.UNSETTLED)
        return self._read_units(begin, units, per_unit, units_off, counts_off)

    def _read_units(
        self, begin: int, units: int, per_unit: int, units_off: int, counts_off: int
    ) -> SlotReading:
        fits = (
            units > 0
            and per_unit > 0
            and units_off >= _SLOT.size
            and units_off % 8 == 0
            and units_off + units * _UNIT.itemsize <= self._slot_bytes
            and counts_off >= _SLOT.size
            and counts_off % 4 == 0
            and counts_off + units * per_unit * 4 <= self._slot_bytes
        )
        if not fits:
            return _without_units(SlotState.BROKEN)
        records = np.frombuffer(self._memory, _UNIT, units, begin + units_off)
        states = records["state"].copy()
        self._fence()
        if states.min() < PENDING or states.max() > UNHARMED:
            return _without_units(SlotState.BROKEN)
        counts = np.frombuffer(self._memory, "<u4", units * per_unit, begin + counts_off)
        return SlotReading(
            SlotState.SETTLED, states, records["sequence_id"].copy(), counts.reshape(units, per_unit).copy()
        )
