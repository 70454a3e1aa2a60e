"""Many threads, a service that keeps dying: every outcome is true, and what is lent stays what was lent."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import kvtriage
from kvtriage import Outcome
from stamped_worker import StampedWorker, streaming_rows

ROWS, KEPT, SECONDS = 600, 300, 2.5
Start = Callable[..., kvtriage.PrivateService]


class Worker:
    """Fills a cache, compacts it, checks every claim, starts anew; now and then lends and takes back."""

    def __init__(self, session: kvtriage.Session, number: int, end: float) -> None:
        self.session, self.number, self.end = session, number, end
        self.noise = random.Random(number)
        self.seen: dict[Outcome, int] = dict.fromkeys(Outcome, 0)

    def run(self) -> None:
        worker = StampedWorker(1, ROWS)
        worker.lend(self.session)
        generation = 0
        while time.monotonic() < self.end:
            generation = self.compact(worker, generation)
            if self.noise.random() < 0.2:
                self.lend_and_take_back()

    def compact(self, worker: StampedWorker, generation: int) -> int:
        sequence = worker.sequence(0)
        sequence.sequence_id, sequence.generation = 1 + self.number, generation
        outcome = self.session.compress(worker.request([sequence], KEPT))
        self.seen[outcome.outcome] += 1
        fate = outcome.fates[0]
        if fate.outcome is Outcome.UNCHANGED:
            assert worker.is_untouched(0)
            return generation
        if fate.outcome is Outcome.APPLIED:
            assert worker.tokens(0, fate.table, fate.kept) == streaming_rows(ROWS, KEPT)
        assert outcome.quarantine == 0
        worker.refill()
        return generation + 1

    def lend_and_take_back(self) -> None:
        memory = kvtriage.HostMemory(4096)
        try:
            lent = self.session.register(kvtriage.Registration([memory.lend()]))
        except kvtriage.KvtriageError as error:
            assert error.code is kvtriage.Code.UNAVAILABLE, error
            return
        self.session.unregister(lent.regions)


def test_threads_and_restarts(start_service: Start) -> None:
    seed = 11
    print(f"seed {seed}")
    noise = random.Random(seed)
    service = start_service()
    with kvtriage.connect(service.endpoint) as session:
        end = time.monotonic() + SECONDS
        workers = [Worker(session, number, end) for number in range(4)]
        pool = ThreadPoolExecutor()
        runs = [pool.submit(worker.run) for worker in workers]
        while time.monotonic() < end:
            time.sleep(noise.uniform(0.1, 0.5))  # between deaths, whatever the workers are doing
            service.process.kill()
            service.process.wait()
            service.start()
        for run in runs:
            run.result(timeout=30)
        assert session.wait_alive(2000)
        assert len(session.list_regions().regions) == len(workers)
        totals = {outcome: sum(worker.seen[outcome] for worker in workers) for outcome in Outcome}
        print(totals, session.state.attachments)
        assert totals[Outcome.APPLIED] > 0 and session.state.attachments > 3


def test_closing_under_a_running_call_settles_it(start_service: Start) -> None:
    service = start_service("--fault=move.mid_rows:delay=300:1")
    session = kvtriage.connect(service.endpoint)
    worker = StampedWorker(1, ROWS)
    worker.lend(session)
    outcomes: list[kvtriage.CompressOutcome] = []
    request = worker.request([worker.sequence(0)], KEPT)
    caller = threading.Thread(target=lambda: outcomes.append(session.compress(request)))
    caller.start()
    time.sleep(0.1)  # whether the job is queued, moves or is over: what is said must be true
    session.close()
    caller.join(10)
    (outcome,) = outcomes
    assert outcome.outcome in (Outcome.APPLIED, Outcome.UNCHANGED) and outcome.quarantine == 0
    if outcome.outcome is Outcome.APPLIED:
        assert worker.tokens(0, outcome.fates[0].table, KEPT) == streaming_rows(ROWS, KEPT)
    else:
        assert worker.is_untouched(0)
