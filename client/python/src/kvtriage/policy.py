"""What decides which rows stay: a policy of named parts (proto/README.md, section 3)."""

from __future__ import annotations

import enum
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field


class ScorerKind(enum.Enum):
    ATTENTION = "attention"
    OBC_VALUE = "obc-value"
    OBC_KEY = "obc-key"
    OBC_JOINT = "obc-joint"
    DROP = "drop"
    VATP = "vatp"
    RECENCY = "recency"
    RANDOM = "random"
    CRITICAL = "critical"  # reads ScoreInputs.output_projection
    KEY_NORM = "key-norm"
    KEY_DIFF = "key-diff"
    LAG_KV = "lagkv"
    EXPECTED_ATTENTION = "expected-attention"  # reads ScoreInputs.query_mean and query_covariance


@dataclass(frozen=True, slots=True)
class Scorer:
    kind: ScorerKind = ScorerKind.ATTENTION
    random_key: int = 0  # RANDOM only
    lag: int = 0  # LAG_KV only
    first_stage: float = 0.0  # CRITICAL only: share of the free slots that attention alone fills
    epsilon: float = 0.0  # CRITICAL and EXPECTED_ATTENTION
    future: int = 0  # EXPECTED_ATTENTION only: positions whose queries are expected


@dataclass(frozen=True, slots=True)
class Window:
    """The query rows that vote: the `last` ones, or `all`."""

    all: bool = False
    last: int = 0  # when not `all`
    # `all`, in observe: what earlier rows have added is multiplied with it at every row that follows.
    # Above 0, at most 1; 0 is 1.
    decay: float = 0.0


class Reduce(enum.IntEnum):
    """Over the query heads of one KV head."""

    UNSPECIFIED = 0
    SUM = 1
    MEAN = 2
    MAX = 3
    PRE = 4  # one score of A, z and o averaged over the group


class PoolKind(enum.IntEnum):
    UNSPECIFIED = 0
    NONE = 1
    AVG = 2
    MAX = 3


@dataclass(frozen=True, slots=True)
class Pool:
    kind: PoolKind = PoolKind.NONE
    kernel: int = 0  # odd; 0 when NONE


@dataclass(frozen=True, slots=True)
class Protect:
    """Rows kept whatever their score: the first `sinks`, the newest `recent`."""

    sinks: int = 0
    recent: int = 0
    recent_share: float = 0.0  # of the budget; the larger of the two counts


@dataclass(frozen=True, slots=True)
class Budget:
    """How many rows stay, protected ones included. One of the two amounts; none with explicit counts."""

    kept_tokens: int | None = None
    kept_ratio: float | None = None  # the share KEPT
    # Across layers, one of the three; none: the name's choice, else uniform.
    uniform_layers: bool = False
    pyramid_beta: int | None = None  # PyramidKV
    explicit_layers: Seq[int] = ()  # kept rows, one count per layer of the call
    # Across heads, one of the three; none: the name's choice, else uniform.
    uniform_heads: bool = False
    adaptive_alpha: float | None = None  # AdaKV
    explicit_heads: Seq[int] = ()  # one count per (layer of the call, KV head), layer-major


class Granularity(enum.IntEnum):
    UNSPECIFIED = 0
    PER_HEAD = 1
    PER_LAYER = 2  # heads share one set
    PER_SEQUENCE = 3  # layers share one set too


@dataclass(frozen=True, slots=True)
class PolicyParts:
    """Parts that are laid over the named policy's; of a policy without a name, all of them."""

    scorer: Scorer | None = None
    window: Window | None = None
    reduce: Reduce | None = None
    pool: Pool | None = None
    protect: Protect | None = None
    budget: Budget | None = None
    granularity: Granularity | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A named policy, parts, or a name with parts laid over it."""

    name: str = ""
    parts: PolicyParts = field(default_factory=PolicyParts)


def named_policy(name: str, kept_ratio: float) -> Policy:
    """A named policy with the share of rows to keep."""
    return Policy(name, PolicyParts(budget=Budget(kept_ratio=kept_ratio)))


def named_policy_tokens(name: str, kept_tokens: int) -> Policy:
    """A named policy with the number of rows to keep."""
    return Policy(name, PolicyParts(budget=Budget(kept_tokens=kept_tokens)))
