"""Runs vLLM on lists of prompts, in a process of its own: python engine.py JOB.json, see `Job`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


@dataclass
class Ask:
    """One request of a batch that is sent at once."""

    prompt: list[int]
    max_tokens: int = 32
    args: dict[str, Any] | None = None  # extra_args


@dataclass
class Answer:
    request: str  # id in the engine, without its random end
    tokens: list[int]
    reason: str


@dataclass
class Job:
    model: str
    batches: list[list[Ask]]
    connector: dict[str, Any] | None = None  # its extra configuration; None: stock vLLM
    engine: dict[str, Any] = field(default_factory=dict)  # arguments of vllm.LLM
    environment: dict[str, str] = field(default_factory=dict)
    refused: list[Ask] = field(default_factory=list)  # sent first, one by one: each must be refused


@dataclass
class Ran:
    answers: list[list[Answer]]
    seconds: list[float]
    log: str
    refusals: list[str] = field(default_factory=list)  # why each of Job.refused was


def run(job: Job, folder: Path, *, module: str = "recording_connector", fails: bool = False) -> Ran:
    """Runs a job. `fails`: it must not start, and `log` says why."""
    folder.mkdir(parents=True, exist_ok=True)
    job_file, out_file = folder / "job.json", folder / "out.json"
    job_file.write_text(json.dumps({**asdict(job), "module": module}))
    environment = {
        **os.environ,
        **job.environment,
        "PYTHONPATH": os.pathsep.join([str(_HERE), os.environ.get("PYTHONPATH", "")]),
        "KVTRIAGE_RECORD": str(folder),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_CPU_CI_ENV": "1",
        # The scheduler in this process, the worker in another: a start is quicker by one process.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
    }
    with open(folder / "log.txt", "w") as log:
        command = [sys.executable, __file__, str(job_file), str(out_file)]
        code = subprocess.run(
            command, check=False, stdout=log, stderr=log, env=environment, timeout=600
        ).returncode
    text = (folder / "log.txt").read_text()
    if fails:
        assert code != 0, f"it started:\n{text[-3000:]}"
        return Ran([], [], text)
    assert code == 0, text[-6000:]
    out = json.loads(out_file.read_text())
    answers = [[Answer(**each) for each in batch] for batch in out["answers"]]
    return Ran(answers, out["seconds"], text, out["refusals"])


def _main(job_file: str, out_file: str) -> None:
    job = json.loads(Path(job_file).read_text())
    from vllm import LLM

    arguments: dict[str, Any] = {
        "dtype": "float32",
        "max_model_len": 2048,
        "enforce_eager": True,
        "block_size": 32,
        "kv_cache_memory_bytes": 128 << 20,
        "enable_prefix_caching": False,
        "max_num_batched_tokens": 2048,
        "skip_tokenizer_init": True,
        **job["engine"],
    }
    if job["connector"] is not None:
        arguments["kv_transfer_config"] = {
            "kv_connector": "KVTriageConnector",
            "kv_connector_module_path": job["module"],
            "kv_role": "kv_both",
            "kv_connector_extra_config": job["connector"],
        }
    llm = LLM(job["model"], **arguments)
    refusals = []
    for ask in job["refused"]:
        try:
            _generate(llm, [ask])
            refusals.append("")
        except ValueError as error:
            refusals.append(str(error))
    answers, seconds = [], []
    for batch in job["batches"]:
        if answers and job["connector"] is not None:
            _wait_alive(llm)
        begin = time.monotonic()
        answers.append(_generate(llm, batch))
        seconds.append(time.monotonic() - begin)
    out = {"answers": answers, "seconds": seconds, "refusals": refusals}
    Path(out_file).write_text(json.dumps(out))


def _generate(llm: Any, asks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All at once, greedily; as dicts of Ask and Answer."""
    from vllm import SamplingParams

    outputs = llm.generate(
        [{"prompt_token_ids": ask["prompt"]} for ask in asks],
        [
            SamplingParams(
                temperature=0,
                max_tokens=ask["max_tokens"],
                ignore_eos=True,
                detokenize=False,
                extra_args=ask["args"],
            )
            for ask in asks
        ],
        use_tqdm=False,
    )
    return [
        {
            "request": output.request_id,
            "tokens": list(output.outputs[0].token_ids),
            "reason": str(output.outputs[0].finish_reason),
        }
        for output in outputs
    ]


def _wait_alive(llm: Any) -> None:
    """Runs tiny requests until the worker is attached to a service (recording_connector.py says so)."""
    alive = Path(os.environ["KVTRIAGE_RECORD"]) / "alive"
    deadline = time.monotonic() + 30
    while not alive.exists() and time.monotonic() < deadline:
        _generate(llm, [{"prompt": [2, 3], "max_tokens": 1, "args": {"kvtriage": False}}])


if __name__ == "__main__":
    _main(*sys.argv[1:])
