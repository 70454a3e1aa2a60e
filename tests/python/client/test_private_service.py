"""A service of one's own: found, started, asked, ended; and when it does not start, why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import kvtriage
import pytest
from waiting import wait_until


def test_is_found_by_the_environment_or_on_path(kvtriaged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVTRIAGED", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(kvtriage.KvtriageError, match="no kvtriaged on PATH"):
        kvtriage.PrivateService()
    monkeypatch.setenv("KVTRIAGED", "/nowhere/kvtriaged")
    with pytest.raises(kvtriage.KvtriageError, match="/nowhere/kvtriaged, which cannot be run"):
        kvtriage.PrivateService()
    monkeypatch.setenv("KVTRIAGED", kvtriaged)
    with kvtriage.PrivateService() as service:
        assert service.metric("kvtriage_sessions") == 0
        directory = service.directory
        assert directory.stat().st_mode & 0o777 == 0o700
    assert service.process.returncode == 0 and not directory.exists()


def test_says_why_it_does_not_start(kvtriaged: str) -> None:
    with pytest.raises(kvtriage.KvtriageError) as failed:
        kvtriage.PrivateService(["--no.such.key=1"], program=kvtriaged)
    assert failed.value.reason == "no_kvtriaged" and "no.such.key" in failed.value.message


def test_ends_with_the_process_that_started_it(kvtriaged: str, tmp_path: Path) -> None:
    code = """if True:
        import os, signal, sys, kvtriage
        service = kvtriage.PrivateService(program=sys.argv[1])
        print(service.process.pid, service.directory, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", code, kvtriaged],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout.split()[0])
    assert wait_until(lambda: not runs(pid))


def runs(pid: int) -> bool:
    try:
        return ") Z " not in Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return False
