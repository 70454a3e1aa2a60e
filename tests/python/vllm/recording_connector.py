"""The plugin, with a record of what happened in the folder KVTRIAGE_RECORD, and faults on demand.

One NNNN.npz per compaction: request, total (tokens), tokens [layers, heads, kept]; per lost request one
without tokens. waits.json: how long each step waited. blocks.jsonl: the pool at every step.
KVTRIAGE_SIGNAL=NUMBER:SIGNAL sends a signal to kvtriaged just before the compaction NUMBER (from 1) is asked for.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import kvtriage.vllm
import numpy as np


class KVTriageConnector(kvtriage.vllm.KVTriageConnector):
    """vLLM finds it by the name of the plugin's own class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._folder = Path(os.environ["KVTRIAGE_RECORD"])
        self._numbers = itertools.count()
        self._asked = 0
        self._waits: list[float] = []
        self._tokens: dict[str, np.ndarray] = {}  # the token of each row, [layers, heads, rows]

    # ---- worker --------------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        super().register_kv_caches(kv_caches)
        worker = self.worker
        run, lose = worker._calls.run, worker._lost

        def recorded_run(due: Any) -> Any:
            self._send_signal(len(due))
            outcomes = run(due)
            for item, outcome in zip(due, outcomes):
                if outcome is not None and outcome.result is not None:
                    self._record_cut(item, outcome.result.sequences[0])
            return outcomes

        def recorded_lose(item: Any, outcome: Any) -> None:
            self._record(item.live.request_id, item.rows + item.live.dropped, None)
            lose(item, outcome)

        worker._calls.run, worker._lost = recorded_run, recorded_lose

    def wait_for_save(self) -> None:
        begin = time.monotonic()
        super().wait_for_save()
        self._waits.append(time.monotonic() - begin)
        (self._folder / "waits.json").write_text(json.dumps(self._waits))

    def _send_signal(self, asked: int) -> None:
        number, _, signal = os.environ.get("KVTRIAGE_SIGNAL", "0:0").partition(":")
        if self._asked < int(number) <= self._asked + asked:
            lent = self.worker._link.lent
            assert lent is not None
            os.kill(lent.session.state.server_pid, int(signal))
            (self._folder / "signalled").touch()
        self._asked += asked

    def _record_cut(self, item: Any, result: Any) -> None:
        sets = result.kept_sets
        layers, heads = len(sets.heads), sets.heads[0]
        kept = np.stack([[sets.at(layer, head) for head in range(heads)] for layer in range(layers)])
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
