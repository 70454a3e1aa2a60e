"""The plugin, with a record of what happened in the folder KVTRIAGE_RECORD, and faults on demand.

One NNNN.npz per compaction: request, total (tokens), tokens [layers, heads, kept]; per lost or preempted
request one without tokens. dump.safetensors: what the first compaction saw. times.jsonl: the service's
microseconds per compaction. waits.json: how long each step waited; steps.json: how long it took. book.json:
what the worker holds after the last step. blocks.jsonl: the pool at every step.
KVTRIAGE_SIGNAL=NUMBER:SIGNAL sends a signal to kvtriaged just before the compaction NUMBER (from 1) is asked for.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import kvtriage
import kvtriage.vllm
import numpy as np
from safetensors.torch import save_file


class KVTriageConnector(kvtriage.vllm.KVTriageConnector):
    """vLLM finds it by the name of the plugin's own class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._folder = Path(os.environ["KVTRIAGE_RECORD"])
        self._numbers = itertools.count()
        self._asked = 0
        self._waits: list[float] = []
        self._steps: list[float] = []
        self._step_began = 0.0
        self._tokens: dict[str, np.ndarray] = {}  # the token of each row, [layers, heads, rows]

    # ---- worker --------------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        super().register_kv_caches(kv_caches)
        self._caches = list(kv_caches.values())
        worker = self.worker
        run, lose = worker._calls.run, worker._lost

        def recorded_run(due: Any) -> Any:
            self._send_signal(len(due))
            self._dump(due[0])
            outcomes = run(due)
            self._record_times(due, outcomes)
            for item, outcome in zip(due, outcomes):
                if outcome is not None and outcome.fates[0].outcome is kvtriage.Outcome.APPLIED:
                    self._record_cut(item, _kept_rows(item, outcome))
            return outcomes

        def recorded_lose(item: Any, outcome: Any) -> None:
            self._record(item.live.request_id, item.rows + item.live.dropped, None)
            lose(item, outcome)

        begin_step = worker.begin_step

        def recorded_begin(runner: Any, scheduled: Any) -> None:
            for request in scheduled.scheduled_cached_reqs.resumed_req_ids:  # they were preempted
                self._record(request, runner.requests[request].num_tokens - 1, None)
            self._step_began = time.monotonic()
            begin_step(runner, scheduled)

        worker._calls.run, worker._lost, worker.begin_step = recorded_run, recorded_lose, recorded_begin

    def wait_for_save(self) -> None:
        begin = time.monotonic()
        super().wait_for_save()
        end = time.monotonic()
        self._waits.append(end - begin)
        self._steps.append(end - self._step_began)
        (self._folder / "waits.json").write_text(json.dumps(self._waits))
        (self._folder / "steps.json").write_text(json.dumps(self._steps))
        book = {"live": len(self.worker._book._live), "slots": len(self.worker._slots._free)}
        (self._folder / "book.json").write_text(json.dumps(book))
        alive = self._folder / "alive"
        alive.unlink(missing_ok=True) if self.worker._link.lent is None else alive.touch()

    def _send_signal(self, asked: int) -> None:
        number, _, signal = os.environ.get("KVTRIAGE_SIGNAL", "0:0").partition(":")
        if self._asked < int(number) <= self._asked + asked:
            lent = self.worker._link.lent
            assert lent is not None
            os.kill(lent.session.state.server_pid, int(signal))
            (self._folder / "signalled").touch()
        self._asked += asked

    def _record_times(self, due: Any, outcomes: Any) -> None:
        with open(self._folder / "times.jsonl", "a") as file:
            for item, outcome in zip(due, outcomes):
                if outcome is not None and outcome.result is not None:
                    times = dataclasses.asdict(outcome.result.timing)
                    file.write(json.dumps({"rows": item.rows, **times}) + "\n")

    def _dump(self, item: Any) -> None:
        """What the first compaction sees, in the CLI's format: dump.safetensors."""
        file = self._folder / "dump.safetensors"
        if file.exists() or item.live.slot is None:
            return
        layout, slots = self.worker._layout, self.worker._slots
        begin, count = slots.span(item.live.slot)
        tensors = {}
        for layer, cache in enumerate(self._caches):
            for name, view in (("k", layout.keys(cache)), ("v", layout.values(cache))):
                rows = view[item.table].transpose(1, 2).flatten(0, 1)[: item.rows]
                tensors[f"layers.{layer}.{name}"] = rows.transpose(0, 1).contiguous()
            queries = slots._queries[layer, begin : begin + count]
            tensors[f"layers.{layer}.q"] = queries.transpose(0, 1).contiguous()
        layers = len(self._caches)
        save_file(
            tensors,
            file,
            metadata={
                "format": "kvtriage-dump-1",
                "kind": "cache",
                "scale": str(self.worker._calls._scale),
                "query_stage": "after_rope",
                "layers": str(layers),
                "dumped_layers": json.dumps(list(range(layers))),
            },
        )

    def _record_cut(self, item: Any, kept: np.ndarray) -> None:
        """kept: rows [layers, heads, kept]."""
        layers, heads, _ = kept.shape
        live, total = item.live, item.rows + item.live.dropped
        old = self._tokens.get(live.request_id) if live.dropped else None
        if old is None:
            old = np.zeros((layers, heads, 0), np.int32)
        fresh = np.arange(total - (item.rows - old.shape[2]), total, dtype=np.int32)
        rows = np.concatenate([old, np.broadcast_to(fresh, (layers, heads, len(fresh)))], axis=2)
        self._tokens[live.request_id] = tokens = np.take_along_axis(rows, kept, axis=2)
        self._record(live.request_id, total, tokens)

    def _record(self, request: str, total: int, tokens: np.ndarray | None) -> None:
        arrays = {} if tokens is None else {"tokens": tokens}
        part = self._folder / "part"
        with open(part, "wb") as file:
            np.savez(file, request=request, total=total, **arrays)
        part.rename(self._folder / f"{next(self._numbers):04}.npz")

    # ---- scheduler -----------------------------------------------------------------------------------

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        side = self._scheduler
        if side is not None:
            held = sum(len(blocks) for blocks in side._manager.req_to_blocks.values())
            quarantined = sum(len(blocks) for blocks in side._quarantined.values())
            pool = {
                "free": side._pool.get_num_free_blocks(),
                "held": held,
                "quarantined": quarantined,
                "all": side._pool.num_gpu_blocks,
                "running": len(scheduler_output.num_scheduled_tokens),
            }
            with open(self._folder / "blocks.jsonl", "a") as file:
                file.write(json.dumps(pool) + "\n")
        return super().build_connector_meta(scheduler_output)


def _kept_rows(item: Any, outcome: Any) -> np.ndarray:
    """[layers, heads, kept]: from the answer; of one that was lost, as `streaming` keeps them."""
    if outcome.result is not None:
        sets = outcome.result.sequences[0].kept_sets
        layers, heads = range(len(sets.heads)), range(sets.heads[0])
        return np.stack([[sets.at(layer, head) for head in heads] for layer in layers])
    assert item.live.plan.policy.policy.name == "streaming", "the sets of this policy cannot be guessed"
    fate = outcome.fates[0]
    sinks = item.live.plan.policy.sinks
    rows = [*range(sinks), *range(item.rows - (fate.kept - sinks), item.rows)]
    return np.broadcast_to(np.array(rows, np.int32), (*fate.kept_rows.reshape(_LAYERS, -1).shape, fate.kept))


_LAYERS = 2  # of the tiny model
