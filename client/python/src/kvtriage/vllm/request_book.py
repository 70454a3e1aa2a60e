"""What the worker knows about each request: its lengths, and when it is compacted next."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kvtriage.vllm.settings import BadRequest, Plan, Settings, plan_of

log = logging.getLogger("kvtriage.vllm")


@dataclass(slots=True)
class Live:
    """A request. Lengths are rows; `logical` ones of vLLM minus `dropped` are those in the cache."""

    request_id: str
    sequence_id: int
    plan: Plan | None  # None: left alone
    prompt_rows: int
    dropped: int = 0
    generation: int = 0
    revision: int = 0
    prefilled: bool = False  # its first compaction is behind it, made or missed
    rows_then: int = 0  # rows after the last compaction, made or missed
    slot: int | None = None  # of QuerySlots

    def start_anew(self) -> None:
        """Its rows are gone: it is computed from the start, in other blocks."""
        self.dropped = self.revision = self.rows_then = 0
        self.generation += 1
        self.prefilled = False

    @property
    def kept_rows(self) -> int:
        assert self.plan is not None
        return self.plan.kept_rows(self.prompt_rows)


@dataclass(frozen=True, slots=True)
class StepOfRequest:
    """What one step means for a request."""

    rows: int  # in the cache after it
    queries: int  # of its newest rows that may vote in the coming compaction
    due: bool


def step_of(live: Live, computed: int, new: int, tokens: int) -> StepOfRequest | None:
    """`computed` tokens before this step, `new` ones in it, `tokens` known. None: nothing is coming.

    The first compaction is due with the last token of the prompt (of a preempted request: of all it has),
    the others after `every` generated tokens.
    """
    plan = live.plan
    if plan is None or (live.prefilled and not plan.every):
        return None
    rows = computed + new - live.dropped
    to_come = live.rows_then + plan.every - rows if live.prefilled else tokens - computed - new
    if to_come >= max(1, plan.policy.window):
        return None
    queries = min(new, plan.policy.window - max(0, to_come)) if plan.policy.window else 0
    return StepOfRequest(rows, queries, to_come <= 0)


class RequestBook:
    """The requests of this worker, by vLLM's id."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._live: dict[str, Live] = {}
        self._ids = itertools.count(1)

    def get(self, request_id: str) -> Live | None:
        return self._live.get(request_id)

    def enter(self, request_id: str, state: Any) -> Live:
        """`state`: vLLM's CachedRequestState. Bad settings are loud here, but stop nobody."""
        live = self._live.get(request_id)
        if live is None:
            plan = self._plan(request_id, state)
            live = Live(request_id, next(self._ids), plan, state.num_prompt_tokens)
            self._live[request_id] = live
        return live

    def forget(self, request_ids: Iterable[str]) -> list[Live]:
        """The finished ones, as they were."""
        return [live for request_id in request_ids if (live := self._live.pop(request_id, None))]

    def dropped(self, request_ids: Iterable[str]) -> list[int]:
        """Per request: tokens that have no row."""
        return [live.dropped if (live := self._live.get(rid)) else 0 for rid in request_ids]

    def _plan(self, request_id: str, state: Any) -> Plan | None:
        if state.sampling_params is None:
            return None
        try:
            return plan_of(self._settings, state.sampling_params.extra_args, state.num_prompt_tokens)
        except BadRequest as error:
            log.error("request %s is not compacted: %s", request_id, error)
            return None
