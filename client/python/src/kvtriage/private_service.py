"""A kvtriaged of one's own: on private sockets, ended with this process. For tests, demos, evaluations."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Sequence as Seq
from pathlib import Path
from types import TracebackType
from typing import final

from kvtriage.errors import Code, KvtriageError, local_error

_START_SECONDS, _END_SECONDS, _POLL_SECONDS = 10.0, 5.0, 0.005


def find_kvtriaged() -> str:
    """The program that the environment's KVTRIAGED names, or the first kvtriaged on PATH."""
    named = os.environ.get("KVTRIAGED")
    found = shutil.which(named) if named else shutil.which("kvtriaged")
    if found is None:
        where = f"KVTRIAGED names {named}, which cannot be run" if named else "no kvtriaged on PATH"
        text = f"{where}: build it, or set KVTRIAGED to its path"
        raise local_error(Code.NOT_FOUND, "no_kvtriaged", text)
    return found


@final
class PrivateService:
    """Runs from the constructor until close(); a context manager. `flags` are added to its command line.

    It ends with the thread that started it (the kernel watches threads, not processes), so with the process
    when that is the main thread, however it ends. One thread at a time.
    """

    def __init__(
        self, flags: Seq[str] = (), *, program: str | None = None, directory: Path | str | None = None
    ) -> None:
        self._program = program or find_kvtriaged()
        self._own_directory = directory is None
        # mkdtemp makes it with mode 0700: nobody else reaches the sockets.
        self.directory = Path(directory or tempfile.mkdtemp(prefix="kvtriage-"))
        self.endpoint = str(self.directory / "kvtriage.sock")
        self._process: subprocess.Popen[bytes] | None = None
        self._metrics_address = ""
        try:
            self.start(flags)
        except BaseException:
            self.close()
            raise

    def start(self, flags: Seq[str] = ()) -> None:
        """After an end: again, on the same sockets."""
        begin = len(self.log())
        command = [
            self._program,
            f"--listen.uds={self.endpoint}",
            "--listen.metrics=127.0.0.1:0",
            "--exit-with-parent",
            "--drain.notice_ms=0",
            "--drain.deadline_ms=1000",
            *flags,
        ]
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
            )
        self._metrics_address = self._wait_started(begin)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None  # set by the constructor
        return self._process

    def log(self) -> str:
        """All that it has said, one JSON object a line."""
        return self._log_path.read_text() if self._log_path.exists() else ""

    def metrics(self) -> dict[str, float]:
        """Every series of /metrics, as "name{labels}"."""
        with urllib.request.urlopen(f"http://{self._metrics_address}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        series = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in series}

    def metric(self, name: str, label: str = "") -> float:
        """The sum over the series of a metric whose labels contain `label`; 0 without one."""
        return sum(
            value
            for series, value in self.metrics().items()
            if series.partition("{")[0] == name and label in series
        )

    def close(self) -> None:
        """Drains and ends it, and removes its directory."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> PrivateService:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _log_path(self) -> Path:
        return self.directory / "log"

    def _wait_started(self, begin: int) -> str:
        """The address of its metrics, from the line that says that the start is over."""
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            ended = self.process.poll() is not None
            for line in self.log()[begin:].splitlines():
                if '"event":"started"' in line and line.endswith("}"):
                    return str(json.loads(line)["metrics"])
            if ended:
                raise self._not_started("ended at once", begin)
            time.sleep(_POLL_SECONDS)
        raise self._not_started("has not started", begin)

    def _not_started(self, what: str, begin: int) -> KvtriageError:
        text = f"{self._program} {what}: {self.log()[begin:][-2000:]}"
        return local_error(Code.UNAVAILABLE, "no_kvtriaged", text)
