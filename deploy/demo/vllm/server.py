"""vLLM's OpenAI server as a user starts it, on a port of its own; it ends with its context."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, final

_START_SECONDS, _END_SECONDS = 300.0, 20.0


@final
class Server:
    """`flags` are added to the command line. Its output goes to `log`."""

    def __init__(self, model: Path, flags: list[str], log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        command += ["--served-model-name", "smollm2", "--host", "127.0.0.1", "--port", str(self._port), *flags]
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            # Threads that wait do not spin: the service's threads need the cores meanwhile (vllm.md).
            "KMP_BLOCKTIME": "0",
            "OMP_WAIT_POLICY": "passive",
        }
        self._log = log
        with open(log, "w") as file:
            # A session of its own, so that all of its processes can be ended together.
            self._process = subprocess.Popen(
                command, stdout=file, stderr=file, env=environment, start_new_session=True
            )

    def __enter__(self) -> Server:
        try:
            self._wait_started()
        except BaseException:
            self.close()
            raise
        return self

    def _wait_started(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                self._get("/health")
                return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError(f"vLLM did not start:\n{self._log.read_text()[-3000:]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Asks, waits, then ends whatever is left of its session."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def chat(self, text: str, tokens: int) -> dict[str, Any]:
        """One chat to its end: the answer of /v1/chat/completions."""
        body = {
            "model": "smollm2",
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=1200) as answer:
            parsed: dict[str, Any] = json.load(answer)
            return parsed

    def metrics(self) -> dict[str, float]:
        """Sums over the series of each metric, by name."""
        sums: dict[str, float] = {}
        for line in self._get("/metrics").splitlines():
            if line and not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                name = series.partition("{")[0]
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as page:
            text: str = page.read().decode()
            return text
