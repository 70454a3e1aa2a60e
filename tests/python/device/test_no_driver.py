"""Machines without a device: every call says so, and a host's memory is lent as ever (C63)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import kvtriage
import pytest
from kvtriage.cuda import DeviceMemory
from stand_in import LIBRARY, StandIn

ASK = """
from kvtriage import KvtriageError
from kvtriage.cuda import DeviceMemory, lend_device_memory, list_cuda_devices
for call in (list_cuda_devices, lambda: lend_device_memory(4096, 64), lambda: DeviceMemory.create(0, 64)):
    try:
        call()
    except KvtriageError as error:
        print(error.code.name, error.reason, error.message)
"""


def ask(monkeypatch: pytest.MonkeyPatch, library: str, folder: str) -> list[str]:
    """Of a process of its own: a driver is loaded once."""
    monkeypatch.setenv("KVTRIAGE_LIBCUDA", library)
    monkeypatch.setenv("KVTRIAGE_FAKE_CUDA", folder)
    asked = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, timeout=60, check=True
    )
    return asked.stdout.splitlines()


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ask(monkeypatch, "/nonexistent/libcuda.so.1", "")
    assert len(lines) == 3
    assert all(line.startswith("UNAVAILABLE no_device no CUDA driver here: /nonexistent") for line in lines)


def test_no_driver_behind_the_library(monkeypatch: pytest.MonkeyPatch, stand_in: StandIn) -> None:
    lines = ask(monkeypatch, str(LIBRARY), "")
    assert lines == ["UNAVAILABLE no_device cuInit: CUDA error 35"] * 3


def test_a_library_without_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ask(monkeypatch, "libc.so.6", "")
    assert lines == ["UNAVAILABLE no_device the CUDA driver is too old: it lacks cuInit"] * 3


def test_no_context_is_made_to_ask_about_a_pointer(
    monkeypatch: pytest.MonkeyPatch, stand_in: StandIn, tmp_path
) -> None:
    lines = ask(monkeypatch, str(LIBRARY), str(tmp_path))
    assert [line.split()[1] for line in lines] == ["bad_argument"]
    assert "uses no CUDA device" in lines[0]


def test_a_service_without_a_device_takes_host_memory_only(
    start_device_service: Callable[..., kvtriage.PrivateService], stand_in: StandIn
) -> None:
    service = start_device_service("devices=0")
    with kvtriage.connect(service.endpoint) as session:
        with pytest.raises(kvtriage.KvtriageError) as raised:
            session.register(kvtriage.Registration([DeviceMemory.create(0, 4096).lend()]))
        assert (raised.value.code, raised.value.reason) == (kvtriage.Code.UNAVAILABLE, "no_device")
        memory = kvtriage.HostMemory(4096)
        assert len(session.register(kvtriage.Registration([memory.lend()])).regions) == 1
