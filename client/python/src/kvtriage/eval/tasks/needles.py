"""Needles in a haystack: one, one among others, many values of one key, many keys asked at once."""

from __future__ import annotations

import random

from kvtriage.eval.tasks.haystack import names, numbers, scatter
from kvtriage.eval.tasks.prompt import Prompt, enumerate_words

INTRODUCTION = "Some access codes are hidden in the following text. Remember them.\n\n"
DIGITS = 5
OTHERS = 3  # needles beside the one asked for
MANY = 3  # values of one key, or keys asked at once


def _needle(key: str, value: str) -> str:
    return f"The access code of {key} is {value}."


def single(seed: int, size: int) -> Prompt:
    """One needle, and it is asked for."""
    return _one("needle-single", seed, size, others=0)


def multi_key(seed: int, size: int) -> Prompt:
    """Four needles, one is asked for: the others look just the same."""
    return _one("needle-multi-key", seed, size, OTHERS)


def _one(task: str, seed: int, size: int, others: int) -> Prompt:
    source = random.Random(f"{task} {seed}")
    keys, values = names(source, others + 1), numbers(source, others + 1, DIGITS)
    asked = source.randrange(others + 1)
    needles = [_needle(key, value) for key, value in zip(keys, values)]
    return Prompt(
        task,
        INTRODUCTION + scatter(source, needles, size),
        f"\n\nWhat is the access code of {keys[asked]}?",
        f"The access code of {keys[asked]} is",
        (values[asked],),
        f" {values[asked]}",
    )


def multi_value(seed: int, size: int) -> Prompt:
    """One key with three values at different places, all are asked for."""
    source = random.Random(f"needle-multi-value {seed}")
    key, values = names(source, 1)[0], numbers(source, MANY, DIGITS)
    return Prompt(
        "needle-multi-value",
        INTRODUCTION + scatter(source, [_needle(key, value) for value in values], size),
        f"\n\nWhat are the {MANY} access codes of {key}?",
        f"The {MANY} access codes of {key} are",
        tuple(values),
        f" {enumerate_words(values)}",
    )


def multi_query(seed: int, size: int) -> Prompt:
    """Four needles, three of them are asked for, in another order than they stand in the text."""
    source = random.Random(f"needle-multi-query {seed}")
    keys, values = names(source, MANY + 1), numbers(source, MANY + 1, DIGITS)
    asked = source.sample(range(MANY + 1), MANY)
    needles = [_needle(key, value) for key, value in zip(keys, values)]
    asked_keys, answers = [keys[i] for i in asked], [values[i] for i in asked]
    return Prompt(
        "needle-multi-query",
        INTRODUCTION + scatter(source, needles, size),
        f"\n\nWhat are the access codes of {enumerate_words(asked_keys)}?",
        f"The access codes of {enumerate_words(asked_keys)} are",
        tuple(answers),
        f" {enumerate_words(answers)}",
    )
