"""Common words: a long list of words in which a few come much more often than all others."""

from __future__ import annotations

import random

from kvtriage.eval.tasks.haystack import COLOURS, THINGS
from kvtriage.eval.tasks.prompt import Prompt, enumerate_words

COMMON = 3  # words that are asked for
OFTEN = 4  # times as often as every other word


def common_words(seed: int, size: int) -> Prompt:
    """`size` rounds: each names the common words four times and every other word once."""
    source = random.Random(f"common-words {seed}")
    every = list(COLOURS + THINGS)
    source.shuffle(every)
    common = every[:COMMON]
    words = (common * OFTEN + every[COMMON:]) * size
    source.shuffle(words)
    return Prompt(
        "common-words",
        f"Below is a list of words. Remember which ones come most often.\n\n{', '.join(words)}",
        f"\n\nWhich {COMMON} words come most often in the list?",
        "The most common words are",
        tuple(common),
        f" {enumerate_words(common)}",
    )
