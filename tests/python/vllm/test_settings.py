"""Settings, policies and configurations that are refused, by name; no engine runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import kvtriage
import pytest
from kvtriage.vllm.policies import served_names, served_policy
from kvtriage.vllm.refusals import refuse_config
from kvtriage.vllm.settings import BadRequest, Settings, plan_of
from kvtriage.vllm.versions import UnsupportedEngine


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"keep": 0}, "keep=0"),
        ({"keep": 1.5}, "keep=1.5"),
        ({"keep": "much"}, "keep='much'"),
        ({"kept": 0.2}, "'kept'"),
        ({"every": -1}, "every=-1"),
        ({"step_ms": 0}, "step_ms=0"),
        ({"mode": "advise"}, "mode='advise'"),
        ({"policy": "snapkw"}, "unknown policy 'snapkw'"),
        ({"policy": "h2o+drop"}, r"'h2o\+drop'.*queries of all rows"),
        ({"policy": "adakv"}, "'adakv'.*unequal"),
        ({"policy": "pyramidkv"}, "'pyramidkv'.*unequal"),
        ({"policy": "vatp"}, "'vatp'.*queries of all rows"),
        ({"policy": "expected-attention"}, "'expected-attention'.*before RoPE"),
        ({"policy": "knorm", "window": 8}, "'window' is for snapkv"),
    ],
)
def test_a_bad_configuration_is_refused_by_name(extra: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedEngine, match=named):
        Settings.of(extra)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({"kvtriage": {"keep": 0}}, "keep=0"),
        ({"kvtriage": {"keep": 2.5}}, "keep=2.5"),
        ({"kvtriage": {"keep": 64}}, "64 rows of 300, not more than the 64 that policy 'snapkv' protects"),
        ({"kvtriage": {"policy": "h2o"}}, "'h2o'"),
        ({"kvtriage": {"budget": 3}}, "'budget'"),
        ({"kvtriage": {"keep": 0.3, "window": 65}}, "window=65: at most 64"),
        ({"kvtriage_keep": "a lot"}, "keep='a lot'"),
        ({"kvtriage": 3}, "a mapping"),
    ],
)
def test_a_bad_request_is_refused_by_name(args: dict[str, Any], named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        plan_of(Settings.of({"keep": 0.5}), args, 300)


def test_a_request_overrides_the_configuration() -> None:
    settings = Settings.of({"keep": 0.5, "every": 64})
    plan = plan_of(settings, None, 300)
    assert plan is not None and (plan.keep, plan.every, plan.kept_rows(300)) == (0.5, 64, 150)
    plan = plan_of(settings, {"kvtriage": {"keep": 100, "every": 0, "window": 16}}, 300)
    assert plan is not None and (plan.kept_rows(300), plan.every, plan.policy.protected) == (100, 0, 16)
    flat = {"kvtriage_keep": "0.29", "kvtriage_every": "32", "other": 1}
    plan = plan_of(settings, flat, 300)
    assert plan is not None and (plan.kept_rows(100), plan.every) == (28, 32)  # one product in double
    for off in ({"kvtriage": False}, {"kvtriage": {"off": True}}, {"kvtriage_off": True}):
        assert plan_of(settings, off, 300) is None
    assert plan_of(Settings.of({}), None, 300) is None, "without 'keep' only requests that ask are compacted"


def test_policies_are_what_the_service_knows(session: kvtriage.Session) -> None:
    known = {policy.name: policy.parts for policy in session.get_server_info().policies}
    for name in served_names():
        mine, parts = served_policy(name), known[name]
        window = parts.window.last if parts.window else 0
        assert (mine.window, mine.sinks, mine.recent) == (window, parts.protect.sinks, parts.protect.recent)
        assert parts.granularity in (kvtriage.Granularity.PER_HEAD, kvtriage.Granularity.PER_LAYER)
    refused = set(known) - set(served_names())
    for name in refused:
        with pytest.raises(UnsupportedEngine, match=f"{name.partition('+')[0]}.*cannot be served"):
            served_policy(name)


def _config() -> Any:
    """The parts of vLLM's configuration that are looked at, all as they should be."""
    return SimpleNamespace(
        parallel_config=SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1),
        cache_config=SimpleNamespace(enable_prefix_caching=False, cache_dtype="auto"),
        model_config=SimpleNamespace(uses_mrope=False),
        scheduler_config=SimpleNamespace(async_scheduling=False),
        use_v2_model_runner=False,
        lora_config=None,
        speculative_config=None,
    )


@pytest.mark.parametrize(
    ("part", "name", "value", "named", "also_observing"),
    [
        ("parallel_config", "tensor_parallel_size", 2, "tensor_parallel_size", True),
        ("parallel_config", "pipeline_parallel_size", 2, "pipeline_parallel_size", True),
        ("parallel_config", "data_parallel_size", 2, "data_parallel_size", True),
        ("parallel_config", "decode_context_parallel_size", 2, "context parallelism", True),
        ("cache_config", "cache_dtype", "fp8", "kv_cache_dtype", True),
        ("model_config", "uses_mrope", True, "M-RoPE", True),
        ("", "use_v2_model_runner", True, "VLLM_USE_V2_MODEL_RUNNER", True),
        ("", "lora_config", object(), "enable_lora", True),
        ("cache_config", "enable_prefix_caching", True, "enable_prefix_caching", False),
        ("scheduler_config", "async_scheduling", True, "async_scheduling", False),
        ("", "speculative_config", object(), "speculative_config", False),
    ],
)
def test_an_engine_that_cannot_be_served_is_refused(
    part: str, name: str, value: object, named: str, also_observing: bool
) -> None:
    compact, observe = Settings.of({}), Settings.of({"mode": "observe"})
    config = _config()
    refuse_config(config, compact)
    setattr(getattr(config, part) if part else config, name, value)
    with pytest.raises(UnsupportedEngine, match=named):
        refuse_config(config, compact)
    if also_observing:
        with pytest.raises(UnsupportedEngine, match=named):
            refuse_config(config, observe)
    else:
        refuse_config(config, observe)
