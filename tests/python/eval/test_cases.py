"""Cases, their labels, and what is sent for them."""

import pytest
from kvtriage import PoolKind
from kvtriage.eval.cases import Case, grid, parse_label, parse_pool


def test_a_label_can_be_read_back():
    for case in grid(
        ["h2o+obc-key", "streaming"], [0.1, 0.125, 1.0], ["default", "16", "all"], ["default", "0.5"], ["avg5"]
    ):
        assert parse_label(case.label) == case


def test_parts_are_laid_over_the_name():
    policy = Case("snapkv+drop", 0.2, window="16", recent_share="0.5", pool="max7").to_policy()
    assert policy.name == "snapkv+drop"
    assert policy.parts.window.last == 16 and not policy.parts.window.all
    assert policy.parts.protect.recent_share == 0.5 and policy.parts.protect.recent == 0
    assert (policy.parts.pool.kind, policy.parts.pool.kernel) == (PoolKind.MAX, 7)
    assert policy.parts.budget.kept_ratio == 0.2
    assert Case("h2o", 0.2, window="all").to_policy().parts.window.all


def test_what_is_left_out_is_the_named_policys_own():
    parts = Case("snapkv", 0.2).to_policy().parts
    assert parts.window is parts.pool is parts.protect is parts.scorer is None


def test_a_policy_without_queries_runs_once_per_budget():
    cases = list(grid(["streaming", "tova"], [0.1, 0.2], windows=["16", "64"], pools=["none", "avg5"]))
    assert [case.label for case in cases if case.policy == "streaming"] == [
        "streaming kept=0.1",
        "streaming kept=0.2",
    ]
    assert len(cases) == len(set(cases)) == 2 + 8


@pytest.mark.parametrize("text", ["avg", "none5", "median5", "5", ""])
def test_a_pool_that_cannot_be_read(text):
    with pytest.raises(ValueError):
        parse_pool(text)


def test_host_and_scorer():
    case = Case("adakv+obc-joint", 0.3)
    assert (case.host, case.scorer) == ("adakv", "obc-joint")
    assert (Case("adakv", 0.3).host, Case("adakv", 0.3).scorer) == ("adakv", "")
