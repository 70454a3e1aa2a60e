"""What is compared: a policy by name, a budget, and the parts that are laid over the name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from kvtriage import Budget, Policy, PolicyParts, Pool, PoolKind, Protect, Window

DEFAULT = "default"  # of a part: what the named policy has
# Policies that no query row votes in: they take neither a window nor a pool.
WITHOUT_QUERIES = frozenset({"streaming", "keydiff", "knorm", "lagkv", "expected-attention"})
POOLS = {"none": PoolKind.NONE, "avg": PoolKind.AVG, "max": PoolKind.MAX}


@dataclass(frozen=True, slots=True)
class Case:
    """One policy at one budget. A part that is `default` is the named policy's own."""

    policy: str
    kept_ratio: float
    window: str = DEFAULT  # rows that vote, or "all"
    recent_share: str = DEFAULT  # protected newest rows, as a share of the budget
    pool: str = DEFAULT  # "none", "avg5", "max7", ...

    @property
    def parts(self) -> str:
        """Everything but policy and budget: cases with equal parts may be compared scorer against scorer."""
        named = (("w", self.window), ("recent", self.recent_share), ("pool", self.pool))
        return " ".join(f"{name}={value}" for name, value in named if value != DEFAULT)

    @property
    def label(self) -> str:
        """The case in one line; `parse_label` reads it back."""
        return " ".join(part for part in (self.policy, self.parts, f"kept={self.kept_ratio:g}") if part)

    @property
    def host(self) -> str:
        """The policy whose scorer is replaced: h2o of h2o+obc-key."""
        return self.policy.partition("+")[0]

    @property
    def scorer(self) -> str:
        """What replaces the host's scorer: obc-key of h2o+obc-key; empty for the host itself."""
        return self.policy.partition("+")[2]

    def to_policy(self) -> Policy:
        """What is sent. Raises ValueError for a part that cannot be read."""
        window = pool = protect = None
        if self.window != DEFAULT:
            window = Window(all=True) if self.window == "all" else Window(last=int(self.window))
        if self.pool != DEFAULT:
            pool = parse_pool(self.pool)
        if self.recent_share != DEFAULT:
            protect = Protect(recent_share=float(self.recent_share))
        budget = Budget(kept_ratio=self.kept_ratio)
        return Policy(self.policy, PolicyParts(window=window, pool=pool, protect=protect, budget=budget))


# Suffixes of a policy's name, in the order of tables: the host's own scorer, then those that replace it.
SCORERS = ("", "obc-value", "obc-key", "obc-joint", "drop")


def table_order(case: Case) -> tuple[object, ...]:
    """Sort key: hosts by name, their parts from short windows to long, each with its scorers together."""
    windows = {DEFAULT: -1.0, "all": float("inf")}
    window = windows.get(case.window) if case.window in windows else float(case.window)
    share = -1.0 if case.recent_share == DEFAULT else float(case.recent_share)
    return case.host, window, share, case.pool, SCORERS.index(case.scorer), case.kept_ratio


_FIELDS = {"w": "window", "recent": "recent_share", "pool": "pool"}


def parse_label(label: str) -> Case:
    """The inverse of Case.label. ValueError or KeyError for anything else."""
    policy, *parts = label.split(" ")
    given = dict(part.split("=", 1) for part in parts)
    kept_ratio = float(given.pop("kept"))
    return Case(policy, kept_ratio, **{_FIELDS[name]: value for name, value in given.items()})


def parse_pool(text: str) -> Pool:
    """none, avgN or maxN, N odd."""
    kind = text.rstrip("0123456789")
    size = text[len(kind) :]
    if kind not in POOLS or (kind == "none") != (size == ""):
        raise ValueError(f"a pool is none, avgN or maxN, got {text!r}")
    return Pool(POOLS[kind], int(size or 0))


def grid(
    policies: Iterable[str],
    budgets: Iterable[float],
    windows: Iterable[str] = (DEFAULT,),
    recent_shares: Iterable[str] = (DEFAULT,),
    pools: Iterable[str] = (DEFAULT,),
) -> Iterator[Case]:
    """Every combination once. A policy without queries has no window and no pool: only its default runs."""
    seen = set()
    for policy, budget, window, share, pool in product(policies, budgets, windows, recent_shares, pools):
        if policy in WITHOUT_QUERIES:
            window = share = pool = DEFAULT
        case = Case(policy, budget, window, share, pool)
        if case not in seen:
            seen.add(case)
            yield case
