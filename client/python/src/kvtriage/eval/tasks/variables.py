"""Variable tracking: a chain of assignments is scattered over the text; all names of one value are asked."""

from __future__ import annotations

import random

from kvtriage.eval.tasks.haystack import numbers, scatter
from kvtriage.eval.tasks.prompt import Prompt, enumerate_words

CHAIN = 3  # names that hold the value asked for
LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


def variable_tracking(seed: int, size: int) -> Prompt:
    """Two chains of three assignments; the names of one chain are the answer."""
    source = random.Random(f"variable-tracking {seed}")
    every = [a + b for a in LETTERS for b in LETTERS]
    names, (value, other) = source.sample(every, 2 * CHAIN), numbers(source, 2, 5)
    ours, theirs = names[:CHAIN], names[CHAIN:]
    needles = []
    for step in range(CHAIN):
        for chain, start in ((ours, value), (theirs, other)):
            needles.append(f"VAR {chain[step]} = {start if step == 0 else 'VAR ' + chain[step - 1]}.")
    return Prompt(
        "variable-tracking",
        "Keep track of the variables that are set in the following text.\n\n"
        + scatter(source, needles, size),
        f"\n\nWhich {CHAIN} variables have the value {value}?",
        f"The variables with the value {value} are",
        tuple(ours),
        f" {enumerate_words(ours)}",
    )
