"""Which policies vLLM can serve, and what each reads: known without a service, for refusals at start."""

from __future__ import annotations

from dataclasses import dataclass

from kvtriage import Budget, Policy, PolicyParts, Protect, Window
from kvtriage.vllm.versions import UnsupportedEngine

_SUFFIXES = ("obc-value", "obc-key", "obc-joint", "drop")
_ALL_QUERIES = "it needs the queries of all rows, and vLLM gives those of a window only"
_UNEQUAL = "it keeps unequal counts per layer or head, and vLLM has one length per request"
_REFUSED = {
    "h2o": _ALL_QUERIES,
    "vatp": _ALL_QUERIES,
    "adakv": _UNEQUAL,
    "pyramidkv": _UNEQUAL,
    "expected-attention": "it needs queries from before RoPE, and vLLM gives those after it",
    "criticalkv": "it reads the output projection, which this plugin does not lend yet",
}


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """A policy without an amount. The counts are rows."""

    policy: Policy
    window: int  # newest queries that vote; 0: it reads keys and values only
    sinks: int
    recent: int

    @property
    def protected(self) -> int:
        return self.sinks + self.recent

    def keeping(self, rows: int) -> Policy:
        parts = self.policy.parts
        return Policy(
            self.policy.name,
            PolicyParts(window=parts.window, protect=parts.protect, budget=Budget(kept_tokens=rows)),
        )


# Name: window, sinks, recent, as the service expands them (tests/python/vllm compares).
_SERVED = {
    "streaming": (0, 4, 1),
    "tova": (1, 0, 1),
    "snapkv": (64, 0, 64),
    "keydiff": (0, 0, 0),
    "knorm": (0, 0, 0),
    "lagkv": (0, 4, 1),
}


def served_names() -> list[str]:
    return [*_SERVED, *(f"{base}+{suffix}" for base in ("tova", "snapkv") for suffix in _SUFFIXES)]


def served_policy(name: str, window: int | None = None) -> ServedPolicy:
    """`window`: another number of queries than snapkv's own; it protects as many recent rows.

    UnsupportedEngine for a policy that vLLM cannot serve, with the reason, and for unknown names.
    """
    base = name.partition("+")[0]
    if base in _REFUSED:
        raise UnsupportedEngine(f"kvtriage: policy {name!r} cannot be served: {_REFUSED[base]}")
    if name not in served_names():
        raise UnsupportedEngine(f"kvtriage: unknown policy {name!r}; one of {', '.join(served_names())}")
    own, sinks, recent = _SERVED[base]
    if window is None or window == own:
        return ServedPolicy(Policy(name), own, sinks, recent)
    if base != "snapkv":
        raise UnsupportedEngine(f"kvtriage: 'window' is for snapkv; policy {name!r} has none to set")
    parts = PolicyParts(window=Window(last=window), protect=Protect(recent=window))
    return ServedPolicy(Policy(name, parts), window, 0, window)
