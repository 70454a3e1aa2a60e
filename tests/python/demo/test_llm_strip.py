"""The picture in the terminal: hand-made cases."""

import numpy as np
from strip import ruler, strip


def test_a_column_is_the_mean_of_its_tokens() -> None:
    share = np.array([0, 0, 0.2, 0.2, 0.4, 0.4, 0, 1, 1, 1])
    assert strip(share, 5) == " ·░▒█"


def test_a_trace_shows() -> None:
    assert strip(np.array([0.0, 0.001, 0.999, 1.0]), 4) == " ·██"


def test_more_columns_than_tokens_stay_empty() -> None:
    assert strip(np.ones(2), 4) == "██  "


def test_the_ruler_prefers_the_needle() -> None:
    assert ruler(8, range(2, 3), range(6, 8), 4) == " N Q"
    assert ruler(8, range(6, 7), range(4, 8), 4) == "  QN"
