"""Finds a task by name and fits it to a number of tokens."""

from __future__ import annotations

from collections.abc import Callable

from kvtriage.eval.tasks import needles, pairs, variables, words
from kvtriage.eval.tasks.haystack import COLOURS, THINGS
from kvtriage.eval.tasks.prompt import Prompt

Generator = Callable[[int, int], Prompt]  # (seed, size) -> prompt
TASKS: dict[str, Generator] = {
    "needle-single": needles.single,
    "needle-multi-key": needles.multi_key,
    "needle-multi-value": needles.multi_value,
    "needle-multi-query": needles.multi_query,
    "key-value": pairs.key_value,
    "variable-tracking": variables.variable_tracking,
    "common-words": words.common_words,
}
LARGEST = {"key-value": len(COLOURS) * len(THINGS)}  # sizes that a generator cannot exceed


def build(task: str, seed: int, tokens: int, count_tokens: Callable[[str], int]) -> Prompt:
    """The largest prompt of this task and seed whose context has at most `tokens` tokens.

    KeyError for an unknown task, ValueError when not even the smallest one fits.
    """
    make = TASKS[task]

    def fits(size: int) -> bool:
        return count_tokens(make(seed, size).context) <= tokens

    low, high = 1, 2
    if not fits(low):
        raise ValueError(f"{task} does not fit into {tokens} tokens")
    largest = LARGEST.get(task, tokens)  # a unit of size is at least one token
    while high <= largest and fits(high):
        low, high = high, 2 * high
    high = min(high, largest + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return make(seed, low)
