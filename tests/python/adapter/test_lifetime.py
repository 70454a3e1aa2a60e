"""What a cache holds, and when it gives it back."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from kvtriage import Code, KvtriageError, Session
from kvtriage.transformers import SidecarCache, lent_cache
from tiny_models import tiny_model, tokens


def join_give_back() -> None:
    for thread in threading.enumerate():
        if thread.name == "kvtriage-give-back":
            thread.join(30)


def test_a_dropped_cache_is_given_back_loudly(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model()
    for _ in range(20):  # more than a session may have at once
        cache = SidecarCache(model, session, 96, kept_tokens=64)
        with cache.attach(model):
            model.generate(tokens(80), past_key_values=cache, max_new_tokens=3, do_sample=False)
        assert cache.evictions == 1
        del cache
        join_give_back()
    assert session.list_regions().regions == ()
    assert sum("dropped without close()" in record.message for record in caplog.records) == 20


def test_a_cache_that_cannot_be_made_leaves_nothing_lent(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory cannot be had; then it can, but not lent a second time."""
    model = tiny_model()
    with pytest.raises(KvtriageError, match="host memory out of range"):
        SidecarCache(model, session, 1 << 60)
    assert session.list_regions().regions == ()

    def refuse(*_: Any) -> Any:
        raise KvtriageError(Code.RESOURCE_EXHAUSTED, "quota_bytes", "no more")

    monkeypatch.setattr(lent_cache.LentCache, "lend", refuse)
    with pytest.raises(KvtriageError, match="no more"):
        SidecarCache(model, session, 96)
    assert session.list_regions().regions == ()


def test_close_after_a_failed_close(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SidecarCache(tiny_model(), session, 96)

    def refuse(*_: Any) -> Any:
        raise KvtriageError(Code.DEADLINE_EXCEEDED, "session_not_quiet", "not yet")

    with monkeypatch.context() as patch, pytest.raises(KvtriageError, match="not yet"):
        patch.setattr(Session, "unregister", refuse)
        cache.close()
    assert len(session.list_regions().regions) == 2
    cache.close()
    assert session.list_regions().regions == ()
    cache.close()


def test_made_in_inference_mode(session: Session) -> None:
    model = tiny_model()
    with torch.inference_mode():
        cache = SidecarCache(model, session, 96, policy="streaming", kept_tokens=20, every=4)
    with cache, cache.attach(model):
        text = model.generate(tokens(40), past_key_values=cache, max_new_tokens=8, do_sample=False)
        with torch.inference_mode():
            model.generate(text, past_key_values=cache, max_new_tokens=8, do_sample=False)
        assert cache.evictions >= 3
