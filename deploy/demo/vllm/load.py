"""Many long chats at once, and what the server's own metrics say meanwhile."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from server import Server

_PERIOD = 0.5


@dataclass(frozen=True)
class Sample:
    seconds: float
    running: float  # requests
    cache: float  # share of the KV blocks in use


@dataclass(frozen=True)
class Load:
    answers: list[str]
    tokens: int
    seconds: float
    samples: list[Sample]

    @property
    def most_running(self) -> int:
        return int(max((sample.running for sample in self.samples), default=0))


def run_load(server: Server, texts: list[str], tokens: int) -> Load:
    """All texts are sent at once."""
    samples: list[Sample] = []
    over = threading.Event()
    begin = time.monotonic()

    def watch() -> None:
        while not over.wait(_PERIOD):
            metrics = server.metrics()
            running = metrics.get("vllm:num_requests_running", 0.0)
            cache = metrics.get("vllm:kv_cache_usage_perc", 0.0)
            samples.append(Sample(time.monotonic() - begin, running, cache))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(len(texts)) as chats:
            answers = list(chats.map(lambda text: server.chat(text, tokens), texts))
        seconds = time.monotonic() - begin
    finally:
        over.set()
        watcher.join()
    made = sum(answer["usage"]["completion_tokens"] for answer in answers)
    contents = [answer["choices"][0]["message"]["content"] for answer in answers]
    return Load(contents, made, seconds, samples)
