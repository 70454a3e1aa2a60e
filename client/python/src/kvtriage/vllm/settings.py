"""What a user can set: for the engine (kv_connector_extra_config), and over it for one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from kvtriage import DEFAULT_ENDPOINT
from kvtriage.vllm.policies import ServedPolicy, served_policy
from kvtriage.vllm.versions import UnsupportedEngine

# Names in SamplingParams.extra_args: one mapping, or flat as in the server's vllm_xargs.
_ARGS, _FLAT = "kvtriage", "kvtriage_"
_OF_A_REQUEST = ("keep", "every", "policy", "window")
# Queries for which every request has room, whatever the connector's own window.
LEAST_WINDOW = 64


class BadRequest(ValueError):
    """Settings of one request that cannot be followed; the text names the setting."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Of the connector."""

    endpoint: str = DEFAULT_ENDPOINT  # socket of kvtriaged
    mode: str = "compact"  # or "observe": score and report, move nothing
    policy: str = "snapkv"
    keep: float | None = None  # share of the prompt's rows, or rows; None: only requests that ask
    every: int = 512  # generated tokens between two compactions; 0: only at the end of the prompt
    window: int | None = None  # queries that vote, of snapkv; None: its own 64
    slots: int = 8  # requests that wait for a compaction at once, each with a window of queries
    step_ms: int = 1000  # a step waits so long for an answer
    resolve_ms: int = 1000  # and so long to learn what became of a call without one
    server_uid: int | None = None  # trusted beside root and our own

    @property
    def observes(self) -> bool:
        return self.mode == "observe"

    @property
    def most_window(self) -> int:
        """Of any request: what there is room for."""
        return max(LEAST_WINDOW, self.window or 0)

    @staticmethod
    def of(extra: Mapping[str, Any]) -> Settings:
        """UnsupportedEngine names the setting that is unknown or out of range."""
        known = {field.name for field in fields(Settings)}
        unknown = sorted(set(extra) - known)
        if unknown:
            _refuse(f"unknown setting {unknown[0]!r}; one of {', '.join(sorted(known))}")
        settings = Settings(**{name: _read(name, value, _refuse) for name, value in extra.items()})
        if settings.mode not in ("compact", "observe"):
            _refuse(f"mode={settings.mode!r}: 'compact' or 'observe'")
        served_policy(settings.policy, settings.window)
        return settings


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done for one request."""

    policy: ServedPolicy
    keep: float
    every: int

    def kept_rows(self, prompt_rows: int) -> int:
        """At least one row; a share is taken of the prompt (algorithms of proto/README.md: one product)."""
        return max(1, int(prompt_rows * self.keep)) if self.keep <= 1 else int(self.keep)


def plan_of(settings: Settings, extra_args: Mapping[str, Any] | None, prompt_rows: int) -> Plan | None:
    """None: this request is left alone. BadRequest names the setting that cannot be followed."""
    asked = _asked(extra_args or {})
    if asked.pop("off", False):
        return None
    unknown = sorted(set(asked) - set(_OF_A_REQUEST))
    if unknown:
        _reject(f"unknown setting {unknown[0]!r}; one of {', '.join(_OF_A_REQUEST)}, off")
    if (_whole(asked.get("window")) or 0) > settings.most_window:
        _reject(f"window={asked['window']!r}: at most {settings.most_window} (the connector's 'window', or 64)")
    merged = replace(settings, **{name: _read(name, value, _reject) for name, value in asked.items()})
    if merged.keep is None:
        if asked:
            _reject("'keep' is missing: neither the request nor the connector's configuration has one")
        return None
    try:
        policy = served_policy(merged.policy, merged.window)
    except UnsupportedEngine as error:
        raise BadRequest(str(error)) from None
    plan = Plan(policy, merged.keep, merged.every)
    rows = plan.kept_rows(prompt_rows)
    if rows <= policy.protected and rows < prompt_rows and asked:
        _reject(
            f"keep={merged.keep:g} is {rows} rows of {prompt_rows}, not more than the {policy.protected} "
            f"that policy {merged.policy!r} protects: raise 'keep', or set a smaller 'window'"
        )
    return plan


def _asked(extra_args: Mapping[str, Any]) -> dict[str, Any]:
    whole = extra_args.get(_ARGS)
    asked = {name[len(_FLAT) :]: value for name, value in extra_args.items() if name.startswith(_FLAT)}
    if whole is None:
        return asked
    if whole is False or whole == "off":
        return {"off": True}
    if not isinstance(whole, Mapping):
        _reject(f"{whole!r}: a mapping of settings, or false")
    return {**asked, **whole}


def _read(name: str, value: Any, refuse: Callable[[str], None]) -> Any:
    """A value of the right type and range."""
    if name == "keep":
        return None if value is None else _keep(value, refuse)
    if name in ("endpoint", "mode", "policy"):
        if not isinstance(value, str):
            refuse(f"{name}={value!r}: a text is needed")
        return value
    if name in ("window", "server_uid") and value is None:
        return None
    least = 0 if name in ("every", "server_uid", "resolve_ms") else 1
    number = _whole(value)
    if number is None or number < least:
        refuse(f"{name}={value!r}: a whole number of at least {least} is needed")
    return number


def _keep(value: Any, refuse: Callable[[str], None]) -> float:
    try:
        keep = float(value)
    except (TypeError, ValueError):
        keep = 0.0
    if not (0 < keep <= 1 or (keep > 1 and keep == int(keep))):
        refuse(f"keep={value!r}: a share above 0 and at most 1, or a whole number of rows above 1, is needed")
    return keep


def _whole(value: Any) -> int | None:
    try:
        number = float(value)  # vllm_xargs may bring numbers as text
        return int(number) if number == int(number) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _refuse(text: str) -> None:
    raise UnsupportedEngine(f"kvtriage: kv_connector_extra_config: {text}")


def _reject(text: str) -> None:
    raise BadRequest(f"kvtriage: this request's settings: {text}")
