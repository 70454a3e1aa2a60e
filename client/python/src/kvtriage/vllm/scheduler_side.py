"""The half of the plugin in the scheduler's process: blocks go back, and are counted without dropped tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from kvtriage.vllm.step_report import Cut, Lost, StepReport
from kvtriage.vllm.versions import UnsupportedEngine

log = logging.getLogger("kvtriage.vllm")


class SchedulerSide:
    """One thread. Uses vLLM's KVCacheManager, one group of full attention."""

    def __init__(self, kv_cache_manager: Any) -> None:
        managers = kv_cache_manager.coordinator.single_type_managers
        if len(managers) != 1 or type(managers[0]).__name__ != "FullAttentionManager":
            kinds = ", ".join(type(manager).__name__ for manager in managers)
            raise UnsupportedEngine(
                f"kvtriage cannot serve this engine: KV cache groups {kinds}: only one group with full "
                "attention in every layer is supported"
            )
        self._manager = managers[0]
        self._pool = kv_cache_manager.block_pool
        self._requests: dict[str, Any] = {}
        self._dropped: dict[str, int] = {}
        self._quarantined: dict[int, list[Any]] = {}  # blocks that a service may still write
        self._count_without_dropped(kv_cache_manager)

    def _count_without_dropped(self, kv_cache_manager: Any) -> None:
        """vLLM works block counts out of num_computed_tokens: it is lowered while it does."""
        allocate = kv_cache_manager.allocate_slots

        def allocate_slots(request: Any, *args: Any, **kwargs: Any) -> Any:
            if request.num_computed_tokens == 0:  # new, preempted or lost: it starts from its first token
                self._dropped.pop(request.request_id, None)
            dropped = self._dropped.get(request.request_id, 0)
            request.num_computed_tokens -= dropped
            try:
                return allocate(request, *args, **kwargs)
            finally:
                request.num_computed_tokens += dropped

        kv_cache_manager.allocate_slots = allocate_slots

    def enter(self, request: Any) -> None:
        self._requests[request.request_id] = request

    def forget(self, request_id: str) -> None:
        self._requests.pop(request_id, None)
        self._dropped.pop(request_id, None)

    def take(self, report: StepReport) -> None:
        """The tokens of the step are appended already, finished requests have given their blocks back."""
        for request_id, cut in report.cut.items():
            self._cut(request_id, cut)
        for request_id, lost in report.lost.items():
            self._lose(request_id, lost)
        for quarantine in report.quiet:
            self._free(self._quarantined.pop(quarantine, []))

    def _cut(self, request_id: str, cut: Cut) -> None:
        request = self._requests.get(request_id)
        if request is None or request.is_finished():
            return
        self._dropped[request_id] = cut.dropped
        blocks = self._manager.req_to_blocks[request_id]
        tail = blocks[cut.blocks :]
        del blocks[cut.blocks :]
        self._free(tail)

    def _lose(self, request_id: str, lost: Lost) -> None:
        """Every token of the request is computed anew, in blocks that nobody else writes.

        It stays among the running ones and is scheduled from its first token, as vLLM itself does with a
        request whose KV could not be loaded.
        """
        request = self._requests.get(request_id)
        if request is None or request.is_finished():
            # Its last token was right, and its blocks are in the pool again.
            if lost.quarantine:
                blocks = [self._pool.blocks[number] for number in lost.block_ids]
                self._pool.touch(blocks)
                self._quarantined.setdefault(lost.quarantine, []).extend(blocks)
            return
        log.error("request %s lost rows of its KV cache: it is computed anew", request_id)
        self._dropped.pop(request_id, None)
        blocks = self._manager.pop_blocks_for_free(request_id)
        request.num_computed_tokens = 0
        if lost.quarantine:
            self._quarantined.setdefault(lost.quarantine, []).extend(blocks)
        else:
            self._free(blocks)

    def _free(self, blocks: Iterable[Any]) -> None:
        self._pool.free_blocks(reversed(list(blocks)))
