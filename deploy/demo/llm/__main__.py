"""A real model answers from its whole KV cache, and from what policies leave of it (make demo-llm).

SmolLM2-135M reads a long text that hides one number, and is asked for it. A service of its own, started
here, keeps 60, 40 and 20 % of the cache; the model goes on from what is left.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import kvtriage
from kvtriage.eval.models import LoadedModel, load_model
from kvtriage.transformers import SidecarCache
from page import page
from prompt import NeedlePrompt, make_prompt
from strip import ruler, strip
from transformers.utils import logging
from trial import ANSWER_TOKENS, Trial, Trials

POLICIES = ("snapkv", "snapkv+obc-key")
BUDGETS = (0.6, 0.4, 0.2)
NAME_WIDTH = 20
HEADER = f"{'':{NAME_WIDTH}}   log p     cache  kept needle   mass  error  answer"
LEGEND = """
log p: natural logarithm of the probability of the right answer. needle: share of layers and heads that kept
its tokens. mass: attention of the window that is still there; error: of its output, relative.
One prompt is one sample: `make eval` has many, with intervals."""


def main() -> int:
    options = _options()
    logging.disable_progress_bar()
    print("Loading SmolLM2-135M-Instruct ...", flush=True)
    loaded = load_model("smollm2")
    prompt = make_prompt(loaded, options.tokens, options.seed)
    print(
        f"A prompt of {len(prompt.ids):,} tokens hides {prompt.answer}. {prompt.question_text}\n", flush=True
    )
    with kvtriage.PrivateService() as service, kvtriage.connect(service.endpoint) as session:
        trials = _run(loaded, session, prompt)
    _print_strips(trials, prompt)
    pieces = [loaded.tokenizer.decode([token]) for token in prompt.ids[:-1]]
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(page(trials, prompt, pieces, loaded.name), encoding="utf-8")
    print(f"\nToken by token, for a browser: {options.page}")
    return 0


def _run(loaded: LoadedModel, session: kvtriage.Session, prompt: NeedlePrompt) -> list[Trial]:
    """Every trial; each one's line is printed when it is done."""
    capacity = len(prompt.ids) + max(ANSWER_TOKENS, len(prompt.reply_ids))
    print(HEADER)
    trials = []
    cache = SidecarCache(loaded.model, session, capacity=capacity, policy=POLICIES[0])
    with cache.attach(loaded.model):
        runs = Trials(loaded, cache, prompt.ids, prompt.reply_ids)
        trials.append(runs.full())
        _print_row(trials[0], trials[0], prompt)
        for kept_ratio in BUDGETS:
            for policy in POLICIES:
                trials.append(runs.compressed(policy, kept_ratio))
                _print_row(trials[-1], trials[0], prompt)
    print(LEGEND)
    return trials


def _print_row(trial: Trial, full: Trial, prompt: NeedlePrompt) -> None:
    found = "+" if prompt.answer in trial.answer else "-"
    kept = trial.kept_bytes / full.kept_bytes
    needle = trial.kept_share[prompt.needle.start : prompt.needle.stop].mean()
    print(
        f"{trial.name:{NAME_WIDTH}} {trial.log_probability:7.2f} {trial.kept_bytes / 1e6:6.1f} MB {kept:5.0%}"
        f" {needle:6.0%} {trial.mass:6.3f} {trial.error:6.3f}  {found} {trial.answer}",
        flush=True,
    )


def _print_strips(trials: Sequence[Trial], prompt: NeedlePrompt) -> None:
    width = min(120, shutil.get_terminal_size().columns) - NAME_WIDTH - 2
    tokens = len(prompt.ids) - 1
    print("\nWhich tokens stayed (share of layers and heads); N: the needle, Q: the question\n")
    print(f"{'':{NAME_WIDTH}}  {ruler(tokens, prompt.needle, prompt.question, width)}")
    for trial in trials[1:]:
        print(f"{trial.name:{NAME_WIDTH}}  {strip(trial.kept_share, width)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo-llm", description=__doc__)
    parser.add_argument("--tokens", type=int, default=1500, help="tokens of the text that hides the needle")
    parser.add_argument("--seed", type=int, default=1, help="another seed, another prompt")
    parser.add_argument(
        "--page", type=Path, default=Path("build/demo/llm.html"), help="where the picture goes"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
