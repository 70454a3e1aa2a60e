"""Which tokens stayed, as one line of characters per trial."""

from __future__ import annotations

import numpy as np

SHADES = " ·░▒▓█"  # none of a column's (token, layer, head) kept, up to all


def strip(kept_share: np.ndarray, width: int) -> str:
    """The share of kept (layer, head) in `width` columns of about the same number of tokens."""
    columns = [part.mean() if len(part) else 0.0 for part in np.array_split(kept_share, width)]
    # Whatever is more than nothing shows.
    return "".join(SHADES[int(np.ceil(share * (len(SHADES) - 1) - 1e-9))] for share in columns)


def ruler(tokens: int, needle: range, question: range, width: int) -> str:
    """A line that points at the needle (N) and the question (Q), in the columns of `strip`."""
    marks = np.full(tokens, " ")
    marks[question.start : question.stop] = "Q"
    marks[needle.start : needle.stop] = "N"
    columns = np.array_split(marks, width)
    return "".join("N" if "N" in part else "Q" if "Q" in part else " " for part in columns)
