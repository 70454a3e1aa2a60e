"""When a request is compacted, and which queries may vote."""

from __future__ import annotations

import torch
from kvtriage.vllm.query_slots import QuerySlots
from kvtriage.vllm.request_book import Live, step_of
from kvtriage.vllm.settings import Settings, plan_of


def _live(prompt: int, **args: object) -> Live:
    plan = plan_of(Settings.of({}), {"kvtriage": {"keep": 0.5, "window": 16, **args}}, prompt)
    return Live("a", 1, plan, prompt)


def test_a_window_in_two_chunks_of_a_prompt() -> None:
    live = _live(100)
    assert step_of(live, 0, 60, 100) is None  # 40 tokens to come
    step = step_of(live, 0, 90, 100)
    assert step is not None and (step.rows, step.queries, step.due) == (90, 6, False)
    step = step_of(live, 90, 10, 100)
    assert step is not None and (step.rows, step.queries, step.due) == (100, 10, True)
    step = step_of(live, 0, 100, 100)
    assert step is not None and (step.rows, step.queries, step.due) == (100, 16, True)


def test_every_n_generated_tokens() -> None:
    live = _live(100, every=32)
    live.prefilled, live.rows_then, live.dropped = True, 50, 50
    due = [step_of(live, computed, 1, computed + 1) for computed in range(100, 133)]
    assert [step is not None for step in due] == [False] * 16 + [True] * 17
    assert [step.due for step in due if step] == [False] * 15 + [True, True]
    assert due[31] is not None and due[31].rows == 82
    live.plan = plan_of(Settings.of({"every": 0, "keep": 0.5}), None, 100)
    assert step_of(live, 500, 1, 501) is None


def test_slots_hold_the_newest_queries_in_order() -> None:
    slots = QuerySlots(layers=2, slots=2, window=4, q_heads=1, dim=2, dtype=torch.float32)
    a, b = slots.take(), slots.take()
    assert a is not None and b is not None and slots.take() is None
    queries = torch.arange(20.0).view(10, 1, 2)
    slots.add(a, 0, 3)
    slots.add(b, 3, 10)  # more than there is room for
    slots.planned()
    for layer in range(2):
        slots.copy(layer, queries + 100 * layer)
    slots.planned()
    slots.copy(0, queries)  # nothing was planned
    assert slots.span(a) == (0, 3) and slots.span(b) == (4, 4)
    assert torch.equal(slots._queries[1, 0:3], queries[:3] + 100)
    assert torch.equal(slots._queries[0, 4:8], queries[6:])
    slots.add(a, 0, 2)  # does not fit: what is there would not end with the newest row
    slots.planned()
    slots.copy(0, queries)
    assert slots.span(a) == (0, 2) and torch.equal(slots._queries[0, 0:2], queries[:2])
    slots.give_back(a)
    assert slots.take() == a and slots.span(a) == (0, 0)
