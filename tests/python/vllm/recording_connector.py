"""The plugin, with a record of what it decided: one .npz per compaction in the folder KVTRIAGE_RECORD."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import kvtriage.vllm
import numpy as np


class KVTriageConnector(kvtriage.vllm.KVTriageConnector):
    """vLLM finds it by the name of the plugin's own class."""

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        super().register_kv_caches(kv_caches)
        self._folder = Path(os.environ["KVTRIAGE_RECORD"])
        self._numbers = itertools.count()
        self._logical: dict[str, np.ndarray] = {}  # token of each row, [layers, heads, rows]
        calls = self.worker._calls
        run = calls.run

        def recorded(due: Any) -> Any:
            outcomes = run(due)
            for item, outcome in zip(due, outcomes):
                if outcome is not None and outcome.result is not None:
                    self._record(item, outcome.result.sequences[0])
            return outcomes

        calls.run = recorded

    def _record(self, item: Any, result: Any) -> None:
        layers, heads = len(result.kept_sets.heads), result.kept_sets.heads[0]
        kept = np.stack(
            [[result.kept_sets.at(layer, head) for head in range(heads)] for layer in range(layers)]
        )
        live, total = item.live, item.rows + item.live.dropped
        old = self._logical.get(live.request_id) if live.dropped else None
        if old is None:
            old = np.zeros((layers, heads, 0), np.int32)
        fresh = np.arange(total - (item.rows - old.shape[2]), total, dtype=np.int32)
        rows = np.concatenate([old, np.broadcast_to(fresh, (layers, heads, len(fresh)))], axis=2)
        tokens = np.take_along_axis(rows, kept, axis=2)
        self._logical[live.request_id] = tokens
        np.savez(
            self._folder / f"{next(self._numbers):04}.npz",
            request=live.request_id,
            tokens=tokens,
            total=total,
        )
