"""The ledger's reader trusts no byte, and what it says of a sequence is never better than the truth."""

from __future__ import annotations

import fcntl
import gc
import os
import random
import struct

import kvtriage
import numpy as np
import pytest
from kvtriage import Outcome
from kvtriage._calls.fates import fates_of_slot
from kvtriage._link.fd_socket import BoundLedger
from kvtriage._link.ledger import Ledger, SlotState, Writer

EPOCH, SESSION, SLOTS, BYTES = 7, 8, 4, 64 + 4 * 1024
SLOT_BYTES = 1024
KEY, OTHER = bytes([1]) * 16, bytes([9]) * 16
FREE, OPEN, CLOSED = 0, 1, 2
NONE, PENDING, MOVING, DONE, UNHARMED = range(5)


class Image:
    """A ledger as a service writes it (proto/wire/ledger_format.h)."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("ledger", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, BYTES)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.put(0, "<4sIQIIQI", b"KVTL", 1, EPOCH, SLOTS, SLOT_BYTES, SESSION, 1)

    def put(self, at: int, layout: str, *values: object) -> None:
        os.pwrite(self.fd, struct.pack(layout, *values), at)

    def slot(
        self, slot: int, key: bytes, states: list[int], state: int = CLOSED, op: int = 1, job: int = 5
    ) -> None:
        """Two layers of a sequence each: units (1, 0), (1, 1), (2, 0), ...; two counts of 40 rows a unit."""
        at, units = 64 + slot * SLOT_BYTES, len(states)
        counts_off = 64 + 16 * units
        self.put(at, "<II16sQIIII", state, op, key, job, units, 2, 64, counts_off)
        for unit, unit_state in enumerate(states):
            self.put(at + 64 + 16 * unit, "<IIQ", unit_state, unit % 2, 1 + unit // 2)
        self.put(at + counts_off, f"<{2 * units}I", *[40] * (2 * units))

    def open(self, epoch: int = EPOCH, session: int = SESSION, bytes_: int = BYTES) -> Ledger:
        return Ledger(BoundLedger(os.dup(self.fd), epoch, bytes_, SLOTS), session)

    def __del__(self) -> None:
        os.close(self.fd)


@pytest.fixture
def image() -> Image:
    return Image()


def test_it_must_be_the_ledger_of_this_session(image: Image) -> None:
    image.open()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for wrong in ({"epoch": 1}, {"session": 1}, {"bytes_": BYTES + 4096}, {"bytes_": 63}, {"bytes_": 0}):
        with pytest.raises(kvtriage.KvtriageError) as refused:
            image.open(**wrong)
        assert refused.value.reason == "not_kvtriage"
    for at, layout, value in ((0, "<4s", b"KVTX"), (4, "<I", 2), (20, "<I", SLOT_BYTES + 64)):
        fresh = Image()
        fresh.put(at, layout, value)
        with pytest.raises(kvtriage.KvtriageError):
            fresh.open()
    del fresh, refused
    gc.collect()  # errors hold what they were about
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_unsealed_object_is_refused() -> None:
    fd = os.memfd_create("ledger", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, BYTES)
    with pytest.raises(kvtriage.KvtriageError, match="not sealed"):
        Ledger(BoundLedger(fd, EPOCH, BYTES, SLOTS), SESSION)


def test_reads_units_and_counts(image: Image) -> None:
    image.slot(2, KEY, [DONE, DONE, UNHARMED, PENDING])
    reading = image.open().read(2, KEY, Writer.ACTIVE)
    assert reading.state is SlotState.SETTLED
    assert reading.states.tolist() == [DONE, DONE, UNHARMED, PENDING]
    assert reading.sequence_ids.tolist() == [1, 1, 2, 2]
    assert reading.counts.tolist() == [[40, 40]] * 4


def test_an_active_service_settles_nothing_before_the_slot_is_closed(image: Image) -> None:
    ledger = image.open()
    assert ledger.read(0, KEY, Writer.ACTIVE).state is SlotState.UNSETTLED  # FREE
    image.slot(0, KEY, [DONE, DONE], OPEN)
    assert ledger.read(0, KEY, Writer.ACTIVE).state is SlotState.UNSETTLED
    image.slot(0, OTHER, [DONE, DONE])
    assert ledger.read(0, KEY, Writer.ACTIVE).state is SlotState.UNSETTLED


def test_a_quiet_service_makes_what_stands_there_final(image: Image) -> None:
    ledger = image.open()
    assert ledger.read(0, KEY, Writer.QUIET).state is SlotState.UNTOUCHED  # FREE
    image.slot(0, OTHER, [DONE, DONE])
    assert ledger.read(0, KEY, Writer.QUIET).state is SlotState.UNTOUCHED
    image.slot(0, KEY, [MOVING, DONE], OPEN)
    assert ledger.read(0, KEY, Writer.QUIET).states.tolist() == [MOVING, DONE]


def test_streams_are_known_by_their_job(image: Image) -> None:
    image.slot(1, bytes(16), [DONE, DONE], op=2, job=77)
    ledger = image.open()
    assert ledger.read_stream(1, 77, Writer.ACTIVE).state is SlotState.SETTLED
    assert ledger.read_stream(1, 78, Writer.ACTIVE).state is SlotState.UNSETTLED
    assert ledger.read_stream(1, 78, Writer.QUIET).state is SlotState.UNTOUCHED
    image.slot(1, bytes(16), [DONE, DONE], op=1, job=77)
    assert ledger.read_stream(1, 77, Writer.QUIET).state is SlotState.UNTOUCHED


def test_sees_the_sessions_end(image: Image) -> None:
    ledger = image.open()
    assert not ledger.session_closed()
    image.put(32, "<I", 2)  # session_state: CLOSED
    assert ledger.session_closed()


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (40, 8),  # units in the slot's head
        (40, 1 << 20),  # behind the slot
        (40, 68),  # unaligned
        (44, 0xFFFFFFFC),  # counts that wrap
        (44, 66),
        (32, 0xFFFFFFFF),  # too many units
        (36, 0xFFFFFFFF),  # too many counts
        (32, 0),
        (36, 0),
        (0, 3),  # no job state
        (64, NONE),  # no unit state
        (64, 5),
    ],
)
def test_what_makes_no_sense_is_broken(image: Image, at: int, value: int) -> None:
    image.slot(3, KEY, [DONE] * 4)
    image.put(64 + 3 * SLOT_BYTES + at, "<I", value)
    reading = image.open().read(3, KEY, Writer.QUIET)
    assert reading.state is SlotState.BROKEN
    assert [fate.outcome for fate in fates_of_slot(reading, SEQUENCES, 2, 16)] == [Outcome.DAMAGED] * 2


def test_any_bytes_are_read_without_a_fault(image: Image) -> None:
    seed = 20261201
    print(f"seed {seed}")
    noise = random.Random(seed)
    ledger = image.open()
    for _ in range(2000):
        slot = noise.randrange(SLOTS)
        image.slot(slot, KEY, [noise.randrange(6) for _ in range(noise.randrange(1, 8))])
        place = 64 + slot * SLOT_BYTES + 4 * noise.randrange(32)
        image.put(place, "<I", noise.choice([noise.getrandbits(32), noise.randrange(2000)]))
        ledger.read(slot, KEY, Writer.QUIET)
        ledger.read_stream(slot, 5, Writer.ACTIVE)
    assert ledger.read(4, KEY, Writer.QUIET).state is SlotState.BROKEN
    assert ledger.read(-1, KEY, Writer.QUIET).state is SlotState.BROKEN


# ---- what a slot says of sequences -------------------------------------------------------------------

SEQUENCES = [
    kvtriage.Sequence(sequence_id=1, kv_revision=3, physical_len=100, table=np.arange(7, dtype=np.int32)),
    kvtriage.Sequence(sequence_id=2, physical_len=100, table=range(7)),
]


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        ([DONE, DONE, PENDING, PENDING], [Outcome.APPLIED, Outcome.UNCHANGED]),
        ([DONE, MOVING, PENDING, UNHARMED], [Outcome.DAMAGED, Outcome.UNCHANGED]),
        ([DONE, PENDING, MOVING, MOVING], [Outcome.DAMAGED, Outcome.DAMAGED]),
        ([DONE, DONE], [Outcome.APPLIED, Outcome.DAMAGED]),  # units of sequence 2 are missing
        ([DONE, DONE, DONE], [Outcome.APPLIED, Outcome.DAMAGED]),
    ],
)
def test_a_sequence_is_what_its_units_say(image: Image, states: list[int], wanted: list[Outcome]) -> None:
    image.slot(0, KEY, states)
    fates = fates_of_slot(image.open().read(0, KEY, Writer.QUIET), SEQUENCES, 2, 16)
    assert [fate.outcome for fate in fates] == wanted
    if wanted[0] is Outcome.APPLIED:
        assert (fates[0].kept, fates[0].kv_revision) == (40, 4)
        assert fates[0].table.tolist() == [0, 1, 2] and fates[0].kept_rows.tolist() == [40] * 4


@pytest.mark.parametrize("kept", [0, 101])
def test_lengths_that_cannot_be_are_damage(image: Image, kept: int) -> None:
    image.slot(0, KEY, [DONE, DONE])
    image.put(64 + 64 + 32, "<4I", *[kept] * 4)
    (fate,) = fates_of_slot(image.open().read(0, KEY, Writer.QUIET), SEQUENCES[:1], 2, 16)
    assert fate.outcome is Outcome.DAMAGED
