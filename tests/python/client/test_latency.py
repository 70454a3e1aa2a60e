"""How long the smallest call takes, end to end. Reported, not asserted: machines differ."""

from __future__ import annotations

import time

import kvtriage
import numpy as np
import pytest
from stamped_worker import StampedWorker

CALLS = 200


def test_smallest_compress(session: kvtriage.Session, capsys: pytest.CaptureFixture[str]) -> None:
    worker = StampedWorker(1, 100)
    worker.lend(session)
    request = worker.request([worker.sequence(0)], 40)
    request.act = kvtriage.SelectOnly()
    took, inside = [], []
    for _ in range(CALLS):
        begin = time.perf_counter()
        outcome = session.compress(request)
        took.append((time.perf_counter() - begin) * 1e6)
        assert outcome.result is not None, outcome.error
        inside.append(outcome.result.timing.total)
    with capsys.disabled():
        print(
            f"\ncompress of 100 rows, select only: {np.median(took):.0f} us (95 %: "
            f"{np.percentile(took, 95):.0f}), of which the service takes {np.median(inside):.0f}"
        )
