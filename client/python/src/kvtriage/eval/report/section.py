"""A part of the page, and the words in which a count of intervals is put."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvtriage.eval.statistics import Interval

MOST_NAMED = 8  # comparisons that a sentence lists


@dataclass(frozen=True, slots=True)
class Section:
    """`findings` go to the top of the page, one line each; `body` is markdown."""

    title: str
    body: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A difference that speaks for a claim when it lies below zero, against it when above."""

    name: str
    difference: Interval | None


def verdict(claim: str, comparisons: Iterable[Comparison]) -> str:
    """Holds a claim against intervals, and names the comparisons that speak for and against it."""
    measured = [(each.name, each.difference.sign) for each in comparisons if each.difference is not None]
    if not measured:
        return f"{claim}: not measured."
    speaks_for = [name for name, sign in measured if sign < 0]
    against = [name for name, sign in measured if sign > 0]
    neither = len(measured) - len(speaks_for) - len(against)
    if speaks_for and not against:
        answer = "holds in direction" if len(speaks_for) > neither else "holds only in part"
    elif against and not speaks_for:
        answer = "does not hold, the order is the other way round"
        if len(against) <= neither:
            answer = "does not hold, in part the order is the other way round"
    else:
        answer = "cannot be told here" if not against else "depends"
    parts = [f"{len(speaks_for)} of {len(measured)} comparisons for it{_listed(speaks_for)}"]
    parts += [f"{len(against)} against it{_listed(against)}", f"{neither} not told apart"]
    return f"{claim}: **{answer}**; {', '.join(parts)}."


def _listed(names: list[str]) -> str:
    if len(names) > MOST_NAMED:
        return " (see the table)"
    return f" ({'; '.join(names)})" if names else ""
