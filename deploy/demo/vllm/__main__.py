"""kvtriaged beside vLLM (make demo-vllm): the same chats with and without compaction.

Starts vLLM's OpenAI server three times on the same small KV cache: as it is, and with the plugin keeping 20
and 10 % of each prompt. Long chats come in over HTTP, all at once.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

import kvtriage
from chart import chart
from kvtriage.eval.tasks.build import build
from load import Load, run_load
from model import model_folder
from server import Server
from transformers import AutoTokenizer

POLICY, WINDOW = "snapkv", 16
CHART_WIDTH = 72


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that every server is ended
    print("Making SmolLM2-135M-Instruct ready for vLLM ...", flush=True)
    model = model_folder(options.model)
    texts = _texts(model, options.chats, options.tokens)
    print(
        f"{options.chats} chats of about {options.tokens:,} tokens at once, {options.answer} tokens each, "
        f"{options.kv_mib} MiB of KV cache, on this machine's CPU.\n",
        flush=True,
    )
    loads: dict[str, Load] = {}
    with tempfile.TemporaryDirectory(prefix="kvtriage-vllm-") as scratch:
        log = Path(scratch) / "vllm.log"
        with Server(model, _flags(options), log) as server:
            loads["stock vLLM"] = _report("stock vLLM", run_load(server, texts, options.answer))
        for keep in (0.2, 0.1):
            name = f"keep {keep:.0%}"
            with (
                kvtriage.PrivateService(["--lane.cpu_threads=0"]) as service,
                Server(model, [*_flags(options), *_plugin_flags(service, keep)], log) as server,
            ):
                loads[name] = _report(name, run_load(server, texts, options.answer))
                _print_decisions(service, server)
    _print_charts(loads)
    _print_answers(loads)
    return 0


def _texts(model: Path, chats: int, tokens: int) -> list[str]:
    tokenizer = AutoTokenizer.from_pretrained(model)
    tasks = [
        build("needle-single", seed, tokens, lambda text: len(tokenizer.encode(text)))
        for seed in range(1, chats + 1)
    ]
    return [task.context + task.question for task in tasks]


def _flags(options: argparse.Namespace) -> list[str]:
    length = options.tokens + options.answer + 200
    return [
        *("--dtype", "float32", "--block-size", "32", "--max-model-len", str(length), "--enforce-eager"),
        *("--kv-cache-memory-bytes", str(options.kv_mib << 20), "--no-enable-prefix-caching"),
        *("--max-num-seqs", str(options.chats)),
    ]


def _plugin_flags(service: kvtriage.PrivateService, keep: float) -> list[str]:
    extra = {"endpoint": service.endpoint, "keep": keep, "policy": POLICY, "window": WINDOW, "every": 64}
    connector = {
        "kv_connector": "KVTriageConnector",
        "kv_connector_module_path": "kvtriage.vllm",
        "kv_role": "kv_both",
        "kv_connector_extra_config": extra,
    }
    return ["--kv-transfer-config", json.dumps(connector)]


def _report(name: str, load: Load) -> Load:
    print(
        f"{name:12} {load.seconds:7.1f} s  {load.tokens / load.seconds:6.1f} tokens/s  "
        f"at most {load.most_running} requests running at once",
        flush=True,
    )
    return load


def _print_decisions(service: kvtriage.PrivateService, server: Server) -> None:
    """From the service's /metrics, and the plugin's own on vLLM's."""
    applied = service.metric("kvtriage_decisions_total", 'outcome="applied"')
    considered = service.metric("kvtriage_tokens_considered_total")
    kept = service.metric("kvtriage_tokens_kept_total")
    engine = server.metrics()
    waited = engine.get("vllm:kvtriage_step_wait_seconds_total", 0.0)
    compactions = engine.get("vllm:kvtriage_compacted_total", 0.0)
    share = kept / considered if considered else 1.0
    print(
        f"{'':12} {compactions:.0f} compactions, {applied:.0f} decisions applied, "
        f"{share:.0%} of the rows kept; steps waited {waited:.2f} s in all",
        flush=True,
    )


def _print_charts(loads: dict[str, Load]) -> None:
    span = max(load.seconds for load in loads.values())
    print(f"\nKV blocks in use (full height: all of them) over {span:.0f} s\n")
    for name, load in loads.items():
        times = [sample.seconds for sample in load.samples]
        print(f"{name:12} {chart(times, [sample.cache for sample in load.samples], span, CHART_WIDTH)}")


def _print_answers(loads: dict[str, Load]) -> None:
    print("\nThe first chat's answer (it goes on after its end: all are equally long)\n")
    for name, load in loads.items():
        print(f"{name:12} {' '.join(load.answers[0].split())[:150]}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo-vllm", description=__doc__)
    parser.add_argument("--chats", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1500, help="of each chat's text")
    parser.add_argument("--answer", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--kv-mib", type=int, default=160, help="KV cache of the engine")
    parser.add_argument("--model", type=Path, default=Path("build/demo/smollm2"), help="made there once")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
