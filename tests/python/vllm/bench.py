"""What compaction costs and gains in the real engine: python tests/python/vllm/bench.py MODEL [PART...].

Parts, all by default: `cost`, choosing and moving for one request of 6,000 tokens against a decode step of the
same run; `gain`, eight requests of 3,000 tokens with 256 generated on 320 MiB of KV cache. Needs a kvtriaged
(KVTRIAGED, or on PATH) and takes ten minutes on two cores. MODEL is a folder that vLLM can load.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import kvtriage
from engine import Ask, Job, run

PASSIVE = {"KMP_BLOCKTIME": "0", "OMP_WAIT_POLICY": "passive"}
WORDS = 2000  # random tokens below this one


def main() -> int:
    model, parts = sys.argv[1], sys.argv[2:] or ["cost", "gain"]
    if "cost" in parts:
        for name, environment in (("threads spin", {}), ("threads wait", PASSIVE)):
            for window in (16, 64):
                _cost(model, name, window, environment)
    if "gain" in parts:
        _gain(model)
    return 0


def _prompts(count: int, tokens: int) -> list[list[int]]:
    words = random.Random(1)
    return [[words.randrange(3, WORDS) for _ in range(tokens)] for _ in range(count)]


def _cost(model: str, name: str, window: int, environment: dict[str, str]) -> None:
    """The service's own times, and what the step waited."""
    ask = Ask(_prompts(1, 6000)[0], 24, {"kvtriage": {"keep": 0.1, "window": window, "every": 0}})
    plain = Ask(ask.prompt, 24)
    engine = {"max_model_len": 6200, "max_num_batched_tokens": 8192, "kv_cache_memory_bytes": 640 << 20}
    with (
        tempfile.TemporaryDirectory() as scratch,
        kvtriage.PrivateService(["--lane.cpu_threads=0"]) as service,
    ):
        folder = Path(scratch)
        ran = run(
            # The first request warms caches and allocators up.
            Job(model, [[ask], [plain], [ask]], {"endpoint": service.endpoint}, engine, environment), folder
        )
        times = [json.loads(line) for line in (folder / "times.jsonl").read_text().splitlines()][-1]
        waits = json.loads((folder / "waits.json").read_text())
        steps = json.loads((folder / "steps.json").read_text())
    decode = statistics.median(steps[26:46])  # of the request that stays as it is
    print(
        f"6,000 rows, window {window}, {name}: a step waited {1000 * max(waits[-24:]):.0f} ms "
        f"(score {times['score'] / 1000:.0f}, select {times['select'] / 1000:.0f}, "
        f"move {times['move'] / 1000:.0f}); a decode step of 6,000 rows takes {1000 * decode:.0f} ms, "
        f"of 600 rows {1000 * statistics.median(steps[-20:]):.0f} ms; {ran.seconds[-1]:.1f} s in all",
        flush=True,
    )


def _gain(model: str) -> None:
    prompts = _prompts(8, 3000)
    engine: dict[str, Any] = {
        "max_model_len": 4096,
        "max_num_batched_tokens": 8192,
        "kv_cache_memory_bytes": 320 << 20,
    }
    baseline = 0.0
    for keep in (None, 0.2, 0.1):
        args = None if keep is None else {"kvtriage": {"keep": keep, "window": 16, "every": 64}}
        batch = [Ask(prompt, 256, args) for prompt in prompts]
        with (
            tempfile.TemporaryDirectory() as scratch,
            kvtriage.PrivateService(["--lane.cpu_threads=0"]) as service,
        ):
            connector = None if keep is None else {"endpoint": service.endpoint}
            job = Job(model, [batch], connector, engine, PASSIVE)
            ran = run(job, Path(scratch), module="kvtriage.vllm")
        seconds = ran.seconds[0]
        baseline = baseline or seconds
        name = "stock" if keep is None else f"keep {keep:.0%}"
        print(
            f"8 requests of 3,000 + 256 tokens, {name}: {seconds:.1f} s, {8 * 256 / seconds:.1f} tokens/s, "
            f"{baseline / seconds:.2f} times stock",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
