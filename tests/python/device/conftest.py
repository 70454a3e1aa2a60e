"""The stand-in for the CUDA driver in this process, and services on its devices."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator

import kvtriage
import pytest
from stand_in import BIN, LIBRARY, REAL, StandIn


@pytest.fixture(scope="session")
def machine() -> Iterator[StandIn | None]:
    """One "machine" for the whole run: the stand-in reads its folder once."""
    if REAL:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="kvtriage-device-") as folder:
        os.environ |= {"KVTRIAGE_FAKE_CUDA": folder, "KVTRIAGE_LIBCUDA": str(LIBRARY)}
        yield StandIn()


@pytest.fixture(autouse=True)
def fresh_machine(machine: StandIn | None) -> None:
    gc.collect()  # memory of earlier tests is freed before it could count
    if machine is not None:
        machine.script("devices=2")


@pytest.fixture
def stand_in(machine: StandIn | None) -> StandIn:
    if machine is None:
        pytest.skip("a real device does not follow a script")
    return machine


@pytest.fixture
def start_device_service(
    start_service: Callable[..., kvtriage.PrivateService],
    machine: StandIn | None,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., kvtriage.PrivateService]:
    """Starts a service that sees what the script says."""

    def start(script: str = "devices=2") -> kvtriage.PrivateService:
        monkeypatch.setenv("KVTRIAGE_FAKE_CUDA_SCRIPT", script)
        service = start_service()
        monkeypatch.delenv("KVTRIAGE_FAKE_CUDA_SCRIPT")
        return service

    return start


@pytest.fixture(scope="session")
def kvtriaged() -> str:
    """With the CUDA backend: its kernels in the emulator, or on the device."""
    return str(BIN / ("kvtriaged" if REAL else "kvtriaged_emulated"))


@pytest.fixture
def session(start_device_service: Callable[..., kvtriage.PrivateService]) -> Iterator[kvtriage.Session]:
    with kvtriage.connect(start_device_service().endpoint) as session:
        yield session
