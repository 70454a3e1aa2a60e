"""The engine goes on whatever happens to kvtriaged, and no token is wrong."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvtriage
from engine import Ask, Job, Ran, run
from masked_reference import MaskedReference
from records import compactions_of, longest_wait, pool_of

TOKENS = 80
ARGS = {"kvtriage": {"keep": 0.3, "every": 32, "window": 16}}
# Where an answer is lost, the sets are not known; those of this policy are.
STREAMING = {"kvtriage": {"keep": 0.3, "every": 32, "policy": "streaming"}}
# The promise is 50 ms over the two; a thread that wakes late on a busy machine is not what is tested.
STEP_MS, RESOLVE_MS, SLACK = 400, 300, 0.25
Start = Callable[..., kvtriage.PrivateService]


def _batch(prompts: list[list[int]], args: dict[str, Any]) -> list[Ask]:
    """Three requests at once, of which two are compacted three times each."""
    return [Ask(prompts[0], TOKENS, args), Ask(prompts[1], TOKENS), Ask(prompts[2], TOKENS, args)]


def _connector(service: kvtriage.PrivateService) -> dict[str, Any]:
    return {"endpoint": service.endpoint, "step_ms": STEP_MS, "resolve_ms": RESOLVE_MS}


def _expect_right(
    ran: Ran, prompts: list[list[int]], reference: MaskedReference, folder: Path
) -> list[list[list[int | None]]]:
    """Every token is the greedy one under what was kept. Per batch and request: kept rows, None for a loss."""
    events: list[list[list[int | None]]] = []
    for batch in ran.answers:
        events.append([])
        for answer, prompt in zip(batch, prompts):
            compactions = compactions_of(folder, answer)
            events[-1].append([None if c.tokens is None else c.tokens.shape[2] for c in compactions])
            right, gap = reference.check(prompt, answer.tokens, compactions)
            assert right == TOKENS, f"token {right} of {answer.request} differs ({events}); smallest gap {gap}"
    for pool in pool_of(folder):
        assert pool["free"] + pool["held"] + pool["quarantined"] == pool["all"] - 1
    return events


def test_a_killed_service_damages_nobody_in_silence(
    start_service: Start,
    tiny_model: Path,
    prompts: list[list[int]],
    reference: MaskedReference,
    tmp_path: Path,
) -> None:
    faults = [
        "lane.after_select:kill",  # before a row moves
        "move.mid_rows:kill:5",  # while rows move
        "rpc.before_finish:kill:3",  # after they moved: the answer is lost, the ledger has the lengths
    ]
    service = start_service(f"--fault={faults[0]}")
    ends: list[int] = []
    over = threading.Event()

    def restart() -> None:
        """And stays: a service ends with the thread that started it."""
        for fault in [*faults[1:], None]:
            ends.append(service.process.wait())
            service.start([f"--fault={fault}"] if fault else [])
        over.wait()

    restarter = threading.Thread(target=restart, daemon=True)
    restarter.start()
    batches = [_batch(prompts, STREAMING) for _ in range(len(faults) + 1)]
    try:
        ran = run(Job(str(tiny_model), batches, _connector(service)), tmp_path)
    finally:
        over.set()
    assert ends == [-signal.SIGKILL] * len(faults)
    events = _expect_right(ran, prompts, reference, tmp_path)
    print(events)
    assert any(None in request for request in events[1]), "a request whose rows were damaged is computed anew"
    assert not any(None in request for batch in (events[0], events[2], events[3]) for request in batch)
    assert [len(request) for request in events[3]] == [3, 0, 3], "the restarted service was not picked up"


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
        """Lets it go on when the engine has given it up."""
        while not over.wait(0.01) and not list(tmp_path.glob("[0-9]*.npz")):
            pass
        service.process.send_signal(signal.SIGCONT)

    waker = threading.Thread(target=go_on)
    waker.start()
    stop = {"KVTRIAGE_SIGNAL": f"1:{int(signal.SIGSTOP)}"}
    batches = [_batch(prompts, ARGS), _batch(prompts, ARGS)]
    try:
        ran = run(Job(str(tiny_model), batches, _connector(service), environment=stop), tmp_path)
    finally:
        over.set()
        waker.join()
    events = _expect_right(ran, prompts, reference, tmp_path)
    print(events, longest_wait(tmp_path))
    assert events[0][0][0] is None, "a request in doubt is computed anew"
    assert longest_wait(tmp_path) <= (STEP_MS + RESOLVE_MS) / 1000 + SLACK
    pools = pool_of(tmp_path)
    assert any(pool["quarantined"] for pool in pools)
    assert not pools[-1]["quarantined"], "blocks did not come back"
    assert [len(request) for request in events[1]] == [3, 0, 3], "the service was not picked up again"


def test_without_a_service_it_runs_uncompressed_and_says_so(
    tiny_model: Path, prompts: list[list[int]], reference: MaskedReference, tmp_path: Path
) -> None:
    connector = {"endpoint": str(tmp_path / "nobody.sock")}
    ran = run(Job(str(tiny_model), [[Ask(prompts[0], TOKENS, ARGS)]], connector), tmp_path)
    assert reference.check(prompts[0], ran.answers[0][0].tokens, [])[0] == TOKENS
    assert "no kvtriaged" in ran.log
