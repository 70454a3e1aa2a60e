"""The engine goes on whatever happens to kvtriaged, and no token is wrong."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import kvtriage
import pytest
from engine import Ask, Job, Ran, run
from masked_reference import MaskedReference
from records import compactions_of, longest_wait, pool_of

TOKENS = 80
ARGS = {"kvtriage": {"keep": 0.3, "every": 32, "window": 16}}
# Where an answer is lost, the sets are not known; those of this policy are.
STREAMING = {"kvtriage": {"keep": 0.3, "every": 32, "policy": "streaming"}}
STEP_MS, RESOLVE_MS, SLACK = 400, 300, 0.05
Start = Callable[..., kvtriage.PrivateService]


def _job(
    model: Path,
    prompts: list[list[int]],
    service: kvtriage.PrivateService,
    args: dict[str, object],
    **environment: str,
) -> Job:
    """Three requests at once, of which two are compacted; then two more when all is over."""
    first = [Ask(prompts[0], TOKENS, args), Ask(prompts[1], TOKENS), Ask(prompts[2], TOKENS, args)]
    last = [Ask(prompts[3], TOKENS, ARGS), Ask(prompts[4], TOKENS)]
    connector = {"endpoint": service.endpoint, "step_ms": STEP_MS, "resolve_ms": RESOLVE_MS}
    return Job(str(model), [first, last], connector, environment=environment)


def _expect_right(
    ran: Ran, prompts: list[list[int]], reference: MaskedReference, folder: Path
) -> list[list[int | None]]:
    """Every token is the greedy one under what was kept. Per request: kept rows, None for a loss."""
    events = []
    for answer, prompt in zip([*ran.answers[0], *ran.answers[1]], prompts):
        compactions = compactions_of(folder, answer)
        events.append([None if c.tokens is None else c.tokens.shape[2] for c in compactions])
        right, gap = reference.check(prompt, answer.tokens, compactions)
        assert right == TOKENS, f"token {right} of {answer.request} differs ({events[-1]}); smallest gap {gap}"
    for pool in pool_of(folder):
        assert pool["free"] + pool["held"] + pool["quarantined"] == pool["all"] - 1
    return events


@pytest.mark.parametrize(
    ("fault", "lost"),
    [
        ("lane.after_select:kill", 0),  # before a row moves
        ("move.mid_rows:kill:5", 1),  # while it moves
        ("rpc.before_finish:kill:4", 0),  # after it moved: the ledger has the lengths
    ],
)
def test_a_killed_service_damages_nobody_in_silence(
    start_service: Start,
    tiny_model: Path,
    prompts: list[list[int]],
    reference: MaskedReference,
    tmp_path: Path,
    fault: str,
    lost: int,
) -> None:
    service = start_service(f"--fault={fault}")
    over = threading.Event()

    def restart() -> None:
        """And stays: a service ends with the thread that started it."""
        service.process.wait()
        service.start()
        over.wait()

    restarter = threading.Thread(target=restart)
    restarter.start()
    try:
        ran = run(_job(tiny_model, prompts, service, STREAMING), tmp_path)
    finally:
        service.process.kill()
        over.set()
        restarter.join()
    events = _expect_right(ran, prompts, reference, tmp_path)
    print(fault, events)
    assert sum(event is None for request in events for event in request) >= lost
    assert events[3], "the restarted service was not picked up again"


def test_a_stopped_service_holds_no_step_longer_than_said(
    start_service: Start,
    tiny_model: Path,
    prompts: list[list[int]],
    reference: MaskedReference,
    tmp_path: Path,
) -> None:
    service = start_service()
    over = threading.Event()

    def go_on() -> None:
        """Lets it go on when the engine has given up."""
        while not over.wait(0.01):
            if list(tmp_path.glob("[0-9]*.npz")) and (tmp_path / "signalled").exists():
                break
        service.process.send_signal(signal.SIGCONT)

    waker = threading.Thread(target=go_on)
    waker.start()
    try:
        stop = f"1:{int(signal.SIGSTOP)}"
        ran = run(_job(tiny_model, prompts, service, ARGS, KVTRIAGE_SIGNAL=stop), tmp_path)
    finally:
        over.set()
        waker.join()
    events = _expect_right(ran, prompts, reference, tmp_path)
    print(events, longest_wait(tmp_path))
    assert None in events[0], "a request in doubt is computed anew"
    assert longest_wait(tmp_path) <= (STEP_MS + RESOLVE_MS) / 1000 + SLACK
    pools = pool_of(tmp_path)
    assert any(pool["quarantined"] for pool in pools)
    assert not pools[-1]["quarantined"], "blocks did not come back"
    assert events[3], "the service was not picked up again"


def test_without_a_service_it_runs_uncompressed_and_says_so(
    tiny_model: Path, prompts: list[list[int]], reference: MaskedReference, tmp_path: Path
) -> None:
    job = Job(
        str(tiny_model), [[Ask(prompts[0], TOKENS, ARGS)]], {"endpoint": str(tmp_path / "nobody.sock")}
    )
    ran = run(job, tmp_path)
    assert reference.check(prompts[0], ran.answers[0][0].tokens, [])[0] == TOKENS
    assert "no kvtriaged" in ran.log
    assert json.loads((tmp_path / "waits.json").read_text())
