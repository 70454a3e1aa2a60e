"""`kvtriage-eval`: runs policies side by side on a model, and writes the page about it."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from kvtriage import KvtriageError, PrivateService, Session, connect
from kvtriage.eval.about import RunLog, describe
from kvtriage.eval.arguments import parser, plan_of
from kvtriage.eval.assemble import measures_of
from kvtriage.eval.models import load_model
from kvtriage.eval.plan import Plan
from kvtriage.eval.progress import Progress
from kvtriage.eval.report.page import page
from kvtriage.eval.report.plots import draw
from kvtriage.eval.runner import run
from kvtriage.eval.store import Store
from kvtriage.eval.texts import load_text

RESULTS = "results.jsonl"


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all was measured; 1 with one line that says what went wrong; 2 for bad arguments."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    disable_progress_bar()  # of loading the weights: the terminal is for ours
    options = parser().parse_args(argv)
    try:
        return _run(options) if options.command == "run" else _report(options)
    except (KvtriageError, OSError, ValueError) as error:
        print(f"kvtriage-eval: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("kvtriage-eval: stopped; run it again with --resume to go on", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    plan: Plan = plan_of(options)
    out: Path = options.out
    if (out / RESULTS).exists() and not options.resume:
        raise ValueError(f"{out} has results: go on with --resume, or name another folder")
    if options.threads:
        torch.set_num_threads(options.threads)
    loaded = load_model(plan.model)
    texts = [load_text(source) for source in plan.texts]
    about = describe(loaded.name, [f"{text.name} ({text.digest})" for text in texts], plan.seed)
    started = time.monotonic()
    # A run that is told to end, or was begun in the background, says what it has as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with closing(Store(out / RESULTS)) as store:
        RunLog(out).begin(plan, about)
        try:
            with _service(options.endpoint) as session, measures_of(plan, loaded, session, texts) as measures:
                new = run(measures, loaded.name, store, Progress())
        finally:
            RunLog(out).add(time.monotonic() - started)
        print(f"{new} new records, {len(store)} in all: {out / RESULTS}")
    return 0


@contextmanager
def _service(endpoint: str | None) -> Iterator[Session]:
    """A session with the service at `endpoint`, or with a private one that ends with this process."""
    if endpoint is not None:
        with connect(endpoint) as session:
            yield session
        return
    with PrivateService() as service, connect(service.endpoint) as session:
        yield session


def _report(options: argparse.Namespace) -> int:
    out: Path = options.out
    if not (out / RESULTS).exists():
        raise ValueError(f"no results in {out}")
    about = RunLog(out).read()
    seed = int(about.get("seed", "0"))
    target: Path = options.page or out / "EVAL.md"
    with closing(Store(out / RESULTS, writable=False)) as store:
        drawn = draw(store, seed, options.plots or out / "plots")
        plots = {title: Path(os.path.relpath(path, target.parent)) for title, path in drawn.items()}
        target.write_text(page(store, seed, about, plots), encoding="utf-8")
    print(f"wrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
