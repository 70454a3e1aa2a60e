"""One question: what is read, what is asked, and the right answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """`context` is read first; then comes `question`, and the model goes on after `lead`.

    `answers` are all right answers, in the order in which `reply` gives them: `reply` is the right
    continuation of `lead` word for word, whose log-probability is measured.
    """

    task: str
    context: str
    question: str
    lead: str
    answers: tuple[str, ...]
    reply: str


def found_share(answers: Sequence[str], text: str) -> float:
    """The share of the answers that occur in the text as whole words (RULER's string match)."""
    found = sum(re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text) is not None for answer in answers)
    return found / len(answers)


def enumerate_words(words: Sequence[str]) -> str:
    """a, b and c"""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
