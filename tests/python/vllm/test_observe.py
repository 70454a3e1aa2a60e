"""Observe mode: the same decisions are scored and reported, and nothing moves; prefix caching stays on."""

from __future__ import annotations

from pathlib import Path

import kvtriage
from engine import Ask, Job, run
from masked_reference import MaskedReference
from records import compactions_of

TOKENS = 40


def test_nothing_moves(
    kvtriaged: str,
    tiny_model: Path,
    prompts: list[list[int]],
    reference: MaskedReference,
    tmp_path: Path,
) -> None:
    asks = [Ask(prompt, TOKENS, {"kvtriage": {"keep": 0.3, "every": 32, "window": 16}}) for prompt in prompts[:2]]
    with kvtriage.PrivateService(program=kvtriaged) as service:
        connector = {"endpoint": service.endpoint, "mode": "observe"}
        engine = {"enable_prefix_caching": True}
        # The second batch finds its prompts in the prefix cache.
        ran = run(Job(str(tiny_model), [asks, asks], connector, engine), tmp_path)
        moved = service.metric("kvtriage_moved_bytes_total")
        advised = service.metric("kvtriage_decisions_total", 'outcome="advised"')
        applied = service.metric("kvtriage_decisions_total", 'outcome="applied"')
    assert (moved, applied) == (0, 0) and advised > 0
    for batch in ran.answers:
        for answer, prompt in zip(batch, prompts):
            assert reference.check(prompt, answer.tokens, [])[0] == TOKENS
            decided = compactions_of(tmp_path, answer)
            assert [d.tokens.shape[2] for d in decided if d.tokens is not None] == [int(len(prompt) * 0.3)] * 2


def test_a_prefix_cache_is_refused_where_rows_move(tiny_model: Path, tmp_path: Path) -> None:
    job = Job(str(tiny_model), [], {"keep": 0.3}, {"enable_prefix_caching": True})
    ran = run(job, tmp_path, fails=True)
    assert "enable_prefix_caching: shared blocks must not be overwritten" in ran.log
