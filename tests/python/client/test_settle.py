"""The rules by which a call that was cut off is settled, apart from any service."""

from __future__ import annotations

import time

import kvtriage
import pytest
from kvtriage import Code
from kvtriage._calls.settle import Verdict, settle

CUT_OFF = kvtriage.KvtriageError(Code.DEADLINE_EXCEEDED, "", "gRPC's own")
ANSWER = "the stored answer"


def from_service(code: Code, reason: str, unharmed: bool) -> kvtriage.KvtriageError:
    return kvtriage.KvtriageError(code, reason, "text", from_service=True, unharmed=unharmed)


class Script:
    """A service whose answers to `resolve` are given; the stream breaks after them."""

    def __init__(
        self, *resolves: str | kvtriage.KvtriageError, lost: bool = False, quiet: bool = True
    ) -> None:
        self.resolves, self.is_lost, self.is_quiet, self.asked = resolves, lost, quiet, 0

    def resolve(self, deadline: float) -> str:
        answer = self.resolves[self.asked]
        self.asked += 1
        self.is_lost = self.asked == len(self.resolves)
        if isinstance(answer, str):
            return answer
        raise answer

    def lost(self) -> bool:
        return self.is_lost

    def quiet(self) -> bool:
        if not self.is_quiet:
            time.sleep(0.001)
        return self.is_quiet

    def settle(self, error: kvtriage.KvtriageError | None, seconds: float = 5) -> Verdict:
        settled = settle(error, self, time.monotonic() + seconds)
        assert (settled.answer == ANSWER) == (settled.verdict is Verdict.ANSWERED)
        return settled.verdict


def test_the_services_unharmed_is_enough() -> None:
    script = Script()
    assert script.settle(from_service(Code.INVALID_ARGUMENT, "table_too_short", True)) is Verdict.UNHARMED
    assert script.asked == 0


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (ANSWER, Verdict.ANSWERED),
        (from_service(Code.CANCELLED, "key_dead", True), Verdict.UNHARMED),
        (from_service(Code.DATA_LOSS, "move_failed", False), Verdict.READ_SLOT),
        (from_service(Code.FAILED_PRECONDITION, "result_expired", False), Verdict.READ_SLOT),
    ],
)
def test_a_deadline_is_resolved_before_anything_is_said(
    answer: str | kvtriage.KvtriageError, verdict: Verdict
) -> None:
    assert Script(answer).settle(CUT_OFF) is verdict
    assert Script(answer).settle(None) is verdict


def test_a_move_that_failed_is_resolved_too() -> None:
    failed = from_service(Code.DATA_LOSS, "move_failed", False)
    script = Script(failed)
    assert script.settle(failed) is Verdict.READ_SLOT and script.asked == 1


@pytest.mark.parametrize(
    "reason", ["session_unknown", "session_ended", "session_busy", "queue_full", "draining", "device_sick"]
)
def test_being_refused_to_ask_is_no_answer(reason: str) -> None:
    """An UNHARMED that speaks of the question says nothing about the call."""
    script = Script(from_service(Code.UNAVAILABLE, reason, True), ANSWER)
    assert script.settle(CUT_OFF) is Verdict.ANSWERED and script.asked == 2


def test_a_lost_stream_waits_for_the_end_and_reads_the_ledger() -> None:
    gone = kvtriage.KvtriageError(Code.UNAVAILABLE, "", "gone")
    assert Script(lost=True).settle(gone) is Verdict.READ_QUIET
    assert Script(gone).settle(gone) is Verdict.READ_QUIET  # lost while it asked


def test_what_never_gets_quiet_is_unknown() -> None:
    assert Script(lost=True, quiet=False).settle(CUT_OFF, seconds=0.03) is Verdict.UNKNOWN
