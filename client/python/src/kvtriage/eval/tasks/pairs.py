"""Key-value retrieval: the whole context is a list of pairs, and every line looks like every other."""

from __future__ import annotations

import random

from kvtriage.eval.tasks.haystack import names, numbers
from kvtriage.eval.tasks.prompt import Prompt

DIGITS = 5


def key_value(seed: int, size: int) -> Prompt:
    """`size` pairs (at most as many as there are names), one is asked for."""
    source = random.Random(f"key-value {seed}")
    keys, values = names(source, size), numbers(source, size, DIGITS)
    asked = source.randrange(size)
    lines = "\n".join(f"{key}: {value}" for key, value in zip(keys, values))
    return Prompt(
        "key-value",
        f"Here is a list of keys and their values.\n\n{lines}",
        f"\n\nWhat is the value of the key {keys[asked]}?",
        f"{keys[asked]}:",
        (values[asked],),
        f" {values[asked]}",
    )
