"""A service that is not there yet is waited for; one that will never let us in is refused at start."""

from __future__ import annotations

from typing import Any

import kvtriage
import pytest
from kvtriage import Code, KvtriageError, Registration
from kvtriage.vllm import service_link
from kvtriage.vllm.service_link import ServiceLink
from kvtriage.vllm.settings import Settings
from kvtriage.vllm.versions import UnsupportedEngine


@pytest.mark.parametrize("reason", ["api_revision", "server_untrusted", "socket_denied", "fd_socket_denied"])
def test_a_service_that_never_lets_us_in(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    def refuse(*_: Any, **__: Any) -> kvtriage.Session:
        raise KvtriageError(Code.PERMISSION_DENIED, reason, "no")

    monkeypatch.setattr(service_link, "connect", refuse)
    with pytest.raises(UnsupportedEngine, match=f"endpoint='/x.sock'.*{reason}"):
        ServiceLink(Settings.of({"endpoint": "/x.sock"}), Registration())
