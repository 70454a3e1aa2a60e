"""A curve over time for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = " ▁▂▃▄▅▆▇█"


def chart(times: Sequence[float], shares: Sequence[float], span: float, width: int) -> str:
    """One line of bars: the largest of `shares` (0 to 1) in each of `width` parts of `span` seconds."""
    columns = [0.0] * width
    for moment, share in zip(times, shares):
        place = min(width - 1, int(width * moment / span))
        columns[place] = max(columns[place], share)
    # A part without a sample goes on as the one before it, up to the last sample.
    last = min(width - 1, int(width * max(times, default=0.0) / span))
    for place in range(1, last + 1):
        columns[place] = columns[place] or columns[place - 1]
    return "".join(_BARS[min(8, round(8 * share))] for share in columns)
