"""Markdown tables and the numbers in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvtriage.eval.statistics import Interval


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose other columns are numbers."""
    lines = [list(header), ["---"] + ["---:"] * (len(header) - 1), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain(interval: Interval | None, digits: int = 3) -> str:
    """mean [low, high]"""
    if interval is None:
        return "-"
    mean, low, high = (_fixed(x, digits) for x in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]" if interval.count > 1 else mean


def _fixed(value: float, digits: int) -> str:
    """Without the sign of a rounded zero."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def signed(interval: Interval | None, digits: int = 3, counted: bool = False) -> str:
    """+mean [+low, +high], in bold when the whole interval lies on one side of zero.

    `counted`: and on how many of the samples the difference is below zero.
    """
    if interval is None:
        return "-"
    bounds = f" [{interval.low:+.{digits}f}, {interval.high:+.{digits}f}]" if interval.count > 1 else ""
    text = f"{interval.mean:+.{digits}f}{bounds}"
    text = f"**{text}**" if interval.sign else text
    return f"{text} {interval.below}/{interval.count}" if counted else text
