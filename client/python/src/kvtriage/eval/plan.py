"""What a run consists of, as plain data that is kept beside its results."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from kvtriage.eval.cases import Case, grid
from kvtriage.eval.tasks import TASKS


@dataclass(frozen=True, slots=True)
class DivergencePlan:
    """`samples` texts are read up to `cut` tokens; `future` more are predicted."""

    samples: int
    cut: int
    future: int
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class RecallPlan:
    samples: int
    cut: int
    windows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PerplexityPlan:
    """Texts of `tokens` tokens are read in chunks; `budgets` are rows kept after each."""

    samples: int
    tokens: int
    chunk: int
    policies: tuple[str, ...]
    budgets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RetrievalPlan:
    """`samples` prompts per task and setting, each of at most `tokens` tokens before the question."""

    samples: int
    tokens: int
    tasks: tuple[str, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class BlendPlan:
    """`samples` passages, and as many prompts per task, of `tokens` tokens in `chunks` chunks.

    Of the cached rows the share `ratio` is recomputed; of a passage `future` more tokens are predicted.
    """

    samples: int
    tokens: int
    future: int
    chunks: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Plan:
    model: str
    texts: tuple[str, ...] = ("python",)
    seed: int = 0
    divergence: tuple[DivergencePlan, ...] = ()
    recall: RecallPlan | None = None
    perplexity: PerplexityPlan | None = None
    retrieval: RetrievalPlan | None = None
    blend: BlendPlan | None = None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True)


HOSTS = ("h2o", "tova", "snapkv", "adakv")
SCORERS = ("obc-value", "obc-key", "obc-joint", "drop")


def findings(model: str = "smollm2") -> Plan:
    """The plan behind EVAL.md: do the OBCache paper's findings hold in direction on this model?

    Sized for two cores and 35 minutes. Few samples of every kind rather than many of one.
    """
    scored = [name for host in HOSTS for name in (host, *(f"{host}+{s}" for s in SCORERS))]
    swept = ("snapkv", "snapkv+obc-key", "snapkv+drop")
    retrieving = ("streaming", "h2o", "h2o+obc-key", "tova", "tova+obc-key", "snapkv")
    retrieved = (0.1, 0.2, 0.4, 0.6, 0.8)
    text = {"cut": 1024, "future": 128}
    return Plan(
        model=model,
        seed=20260,
        divergence=(
            DivergencePlan(
                samples=12,
                cases=(
                    *grid(("streaming", "pyramidkv", "vatp", "keydiff", "knorm", "lagkv"), (0.1, 0.2, 0.3, 0.4)),
                    *grid(scored, (0.1, 0.2, 0.3, 0.4)),
                ),
                **text,
            ),
            DivergencePlan(
                samples=5,
                cases=tuple(
                    grid(
                        swept,
                        (0.1, 0.2, 0.4),
                        windows=("16", "64", "512"),
                        recent_shares=("0", "0.5", "0.75"),
                        pools=("none", "avg5"),
                    )
                ),
                **text,
            ),
        ),
        recall=RecallPlan(samples=12, cut=1024, windows=(1, 8, 32, 64, 128, 256)),
        perplexity=PerplexityPlan(
            samples=6,
            tokens=3072,
            chunk=64,
            policies=("streaming", "h2o", *(f"h2o+{scorer}" for scorer in SCORERS)),
            budgets=(256,),
        ),
        retrieval=RetrievalPlan(
            samples=3,
            tokens=512,
            tasks=tuple(TASKS),
            # The defaults, and snapkv with the short window that retrieval on small models wants.
            cases=(
                *grid(retrieving, retrieved),
                *grid(swept, retrieved, windows=("16",), recent_shares=("0.1",), pools=("avg5",)),
            ),
        ),
        blend=BlendPlan(samples=5, tokens=768, future=128, chunks=5, ratio=0.15),
    )
