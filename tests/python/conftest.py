"""What the tests of the Python packages share: a kvtriaged of their own, and sessions on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import kvtriage
import pytest

_CHECKOUT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("KVTRIAGE_BIN", _CHECKOUT / "build" / "dev" / "bin"))


@pytest.fixture(scope="session")
def kvtriaged() -> str:
    """The program under test. KVTRIAGE_BIN names its folder."""
    program = BIN / "kvtriaged"
    if not program.exists():
        pytest.fail(f"no {program}: build it first, or set KVTRIAGE_BIN")
    return str(program)


@pytest.fixture
def start_service(kvtriaged: str) -> Iterator[Callable[..., kvtriage.PrivateService]]:
    """Starts services with flags of a test's own; they end with the test."""
    services: list[kvtriage.PrivateService] = []

    def start(*flags: str) -> kvtriage.PrivateService:
        services.append(kvtriage.PrivateService(["--log.level=debug", *flags], program=kvtriaged))
        return services[-1]

    yield start
    for service in services:
        service.close()


@pytest.fixture
def service(start_service: Callable[..., kvtriage.PrivateService]) -> kvtriage.PrivateService:
    return start_service()


@pytest.fixture
def session(service: kvtriage.PrivateService) -> Iterator[kvtriage.Session]:
    with kvtriage.connect(service.endpoint) as session:
        yield session
