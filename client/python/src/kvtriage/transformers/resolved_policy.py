"""What a policy will ask of the adapter: which query rows, and which other inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvtriage import Budget, Policy, PolicyParts, Protect, ScorerKind, Window


@dataclass(frozen=True)
class ResolvedPolicy:
    """A policy without an amount, and the parts of it that concern its inputs."""

    policy: Policy
    scorer: ScorerKind
    window: Window | None
    protect: Protect

    @property
    def accumulates(self) -> bool:
        """Reads the queries of all rows, and goes on from running scores while the model decodes."""
        return self.window is not None and self.window.all

    @property
    def needs_all_queries(self) -> bool:
        return self.accumulates or self.scorer is ScorerKind.EXPECTED_ATTENTION

    @property
    def window_rows(self) -> int:
        """Newest query rows that vote, at most; 0: none, or all."""
        return self.window.last if self.window is not None and not self.window.all else 0

    def with_window(self, rows: int) -> ResolvedPolicy:
        """The same policy with the newest `rows` query rows, for a caller that has no others."""
        window = Window(last=rows)
        return replace(
            self, policy=replace(self.policy, parts=replace(self.policy.parts, window=window)), window=window
        )

    def keeping(self, tokens: int | None = None, ratio: float | None = None) -> Policy:
        """The policy with an amount. Neither: its own, or its explicit counts."""
        if tokens is None and ratio is None:
            return self.policy
        budget = replace(self.policy.parts.budget or Budget(), kept_tokens=tokens, kept_ratio=ratio)
        return replace(self.policy, parts=replace(self.policy.parts, budget=budget))


def resolve_policy(known: Iterable[Policy], policy: Policy | str) -> ResolvedPolicy:
    """Lays a policy over what its name stands for. `known`: ServerInfo.policies.

    A name that is not among them is resolved without parts: the call that uses it is refused, with a list.
    """
    wanted = Policy(policy) if isinstance(policy, str) else policy
    named = next((entry.parts for entry in known if entry.name == wanted.name), PolicyParts())
    scorer = wanted.parts.scorer or named.scorer
    return ResolvedPolicy(
        policy=wanted,
        scorer=scorer.kind if scorer else ScorerKind.ATTENTION,
        window=wanted.parts.window or named.window,
        protect=wanted.parts.protect or named.protect or Protect(),
    )


def check_amount(tokens: int | None, ratio: float | None) -> None:
    """ValueError for what no cache can be cut back to. Neither: nothing is to be cut."""
    if tokens is not None and ratio is not None:
        raise ValueError("one of kept_tokens and kept_ratio")
    if tokens is not None and tokens < 1:
        raise ValueError(f"kept_tokens={tokens}: at least 1 row stays")
    if ratio is not None and not 0 < ratio <= 1:
        raise ValueError(f"kept_ratio={ratio}: a share of the tokens, above 0 and at most 1")


def check_known(known: Iterable[Policy], policy: Policy) -> None:
    """ValueError for a name that the service does not have. A policy without one is made of its parts."""
    names = sorted(entry.name for entry in known)
    if policy.name and policy.name not in names:
        raise ValueError(f"policy {policy.name!r} is not one of the service's: {', '.join(names)}")
