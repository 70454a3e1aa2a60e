"""Nothing is left behind, nothing goes too early: descriptors, mappings, threads, owners, processes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace

import kvtriage
import numpy as np
import pytest
from kvtriage import Outcome
from stamped_worker import StampedWorker
from waiting import wait_until

ROWS, KEPT = 100, 40
Start = Callable[..., kvtriage.PrivateService]


def held() -> tuple[int, int]:
    """Open descriptors, and mappings of lent memory."""
    with open("/proc/self/maps") as maps:
        mapped = sum("memfd:kvtriage" in line for line in maps)
    return len(os.listdir("/proc/self/fd")), mapped


# https://github.com/pytorch/pytorch/issues/145703 https://github.com/pytorch/pytorch/issues/149187
def test_a_hundred_registrations_leave_nothing(
    service: kvtriage.PrivateService, session: kvtriage.Session
) -> None:
    def lend_and_take_back() -> None:
        with kvtriage.HostMemory(1 << 16) as memory:
            lent = session.register(kvtriage.Registration([memory.lend()]))
            session.unregister(lent.regions)

    lend_and_take_back()
    before, threads = held(), threading.active_count()
    for _ in range(100):
        lend_and_take_back()
    assert held() == before and threading.active_count() == threads
    assert service.metric("kvtriage_mapped_bytes") == 0
    assert session.list_regions() == kvtriage.MemoryList((), ())


def test_a_closed_session_leaves_nothing(service: kvtriage.PrivateService) -> None:
    def attach_and_close() -> None:
        with kvtriage.connect(service.endpoint) as session:
            StampedWorker(1, ROWS).lend(session)

    attach_and_close()
    gc.collect()
    before = held(), threading.active_count()
    for _ in range(5):
        attach_and_close()
    gc.collect()
    assert wait_until(lambda: (held(), threading.active_count()) == before, 2), (held(), before)
    assert service.metric("kvtriage_sessions") == 0


def test_a_dropped_session_ends_by_itself(service: kvtriage.PrivateService) -> None:
    before = threading.active_count()
    session = kvtriage.connect(service.endpoint)
    StampedWorker(1, ROWS).lend(session)
    del session
    gc.collect()
    assert wait_until(lambda: service.metric("kvtriage_sessions") == 0, 2)
    assert wait_until(lambda: threading.active_count() == before, 2)


def test_restarts_leave_nothing(service: kvtriage.PrivateService, session: kvtriage.Session) -> None:
    StampedWorker(1, ROWS).lend(session)

    def restart() -> None:
        service.process.kill()
        service.process.wait()
        assert wait_until(lambda: not session.alive, 2)
        service.start()
        assert session.wait_alive(2000)

    restart()
    gc.collect()
    before = held(), threading.active_count()
    for _ in range(3):
        restart()
    gc.collect()
    assert wait_until(lambda: (held(), threading.active_count()) == before, 2), (held(), before)


def test_refused_registrations_leave_nothing(
    service: kvtriage.PrivateService, session: kvtriage.Session
) -> None:
    with kvtriage.HostMemory(4096) as memory:
        before = held()
        for region in (memory.lend(offset=1), memory.lend(size=8192), kvtriage.RegionSpec(fd=-1, size=1)):
            with pytest.raises(kvtriage.KvtriageError):
                session.register(kvtriage.Registration([memory.lend(), region]))
        assert held() == before
    assert service.metric("kvtriage_mapped_bytes") == 0


def test_an_owner_is_kept_until_the_memory_is_back(session: kvtriage.Session) -> None:
    class Owner:
        pass

    owner = Owner()
    alive = weakref.ref(owner)
    memory = kvtriage.HostMemory(4096)
    lent = session.register(kvtriage.Registration([replace(memory.lend(), owner=owner)]))
    del owner
    gc.collect()
    assert alive() is not None
    session.unregister(lent.regions)
    gc.collect()
    assert alive() is None


def test_an_owner_of_a_session_that_closes_is_let_go(service: kvtriage.PrivateService) -> None:
    class Owner:
        pass

    owner = Owner()
    alive = weakref.ref(owner)
    memory = kvtriage.HostMemory(4096)
    with kvtriage.connect(service.endpoint) as session:
        session.register(kvtriage.Registration([replace(memory.lend(), owner=owner)]))
        del owner
    del session
    gc.collect()
    assert wait_until(lambda: alive() is None, 2)


def test_a_forked_child_fails_at_once(service: kvtriage.PrivateService) -> None:
    """In a process of its own: gRPC does not survive a fork, and neither might pytest."""
    code = textwrap.dedent(
        """
        import os, sys, time, kvtriage
        session = kvtriage.connect(sys.argv[1])
        child = os.fork()
        if child == 0:
            begin, reasons = time.monotonic(), []
            outcome = session.compress(kvtriage.CompressRequest())
            reasons.append(outcome.error.reason)
            for call in (session.get_server_info, session.list_regions, session.unregister_all,
                         lambda: session.register(kvtriage.Registration())):
                try:
                    call()
                except kvtriage.KvtriageError as error:
                    reasons.append(error.reason)
            session.close()
            good = reasons == ["forked"] * 5 and not session.alive and not session.wait_alive(5000)
            os._exit(0 if good and time.monotonic() - begin < 1 else 1)
        assert os.waitpid(child, 0)[1] == 0, "the child"
        assert session.get_server_info().epoch  # the parent's copy still works
        session.close()
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code, service.endpoint],
        timeout=30,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# https://github.com/python/cpython/issues/82300 https://github.com/python/cpython/issues/104291
# https://github.com/python/cpython/issues/153279
def test_a_child_that_attaches_and_exits_takes_no_memory_along(
    service: kvtriage.PrivateService, session: kvtriage.Session
) -> None:
    worker = StampedWorker(1, ROWS)
    worker.lend(session)
    checksum = session.checksum(worker.region, 0, 4096)
    code = textwrap.dedent(
        """
        import sys, kvtriage
        memory = kvtriage.HostMemory.wrap(int(sys.argv[2]))
        session = kvtriage.connect(sys.argv[1])
        lent = session.register(kvtriage.Registration([memory.lend()]))
        print(session.checksum(lent.regions[0], 0, 4096))
        """  # and exits without closing anything
    )
    command = [sys.executable, "-c", code, service.endpoint, str(worker.memory.fd)]
    child = subprocess.run(
        command, pass_fds=[worker.memory.fd], timeout=30, capture_output=True, text=True, check=False
    )
    assert (child.returncode, child.stdout.strip()) == (0, str(checksum)), child.stderr
    service.process.kill()
    service.process.wait()
    assert wait_until(lambda: not session.alive, 2)
    service.start()
    assert session.wait_alive(2000)
    assert session.checksum(worker.region, 0, 4096) == checksum  # the same bytes, registered again
    assert worker.is_untouched(0)


def test_threads_share_a_session(session: kvtriage.Session) -> None:
    """More threads than ledger slots and jobs in flight: all get their turn, none another's answer."""
    workers = [StampedWorker(1, ROWS) for _ in range(12)]
    outcomes: list[kvtriage.CompressOutcome | None] = [None] * len(workers)

    def run(i: int) -> None:
        workers[i].lend(session)
        sequence = workers[i].sequence(0)
        sequence.sequence_id = 100 + i
        outcomes[i] = session.compress(workers[i].request([sequence], KEPT))

    threads = [threading.Thread(target=run, args=[i]) for i in range(len(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, outcome in enumerate(outcomes):
        assert outcome is not None and outcome.outcome is Outcome.APPLIED, outcome
        assert outcome.fates[0].sequence_id == 100 + i
    assert len(session.list_regions().regions) == len(workers)


def test_the_round_trip_of_the_doctor(session: kvtriage.Session) -> None:
    memory = kvtriage.HostMemory(4096)
    (region,) = session.register(kvtriage.Registration([memory.lend()])).regions
    written = session.write_pattern(region, 64, 128, seed=7)
    assert written == session.checksum(region, 64, 128)
    words = memory.array(16, np.uint64, 64)
    fnv = 0xCBF29CE484222325
    for byte in words.tobytes():
        fnv = ((fnv ^ byte) * 0x100000001B3) % (1 << 64)
    assert fnv == written and len(set(words.tolist())) == 16


def test_closing_takes_no_longer_than_it_says(service: kvtriage.PrivateService) -> None:
    session = kvtriage.connect(service.endpoint)
    begin = time.monotonic()
    session.close()
    session.close()
    assert time.monotonic() - begin < 1
    with pytest.raises(kvtriage.KvtriageError) as closed:
        session.get_server_info()
    assert closed.value.reason == "closed"
    assert session.compress(kvtriage.CompressRequest()).outcome is Outcome.UNAVAILABLE
