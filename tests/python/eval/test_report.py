"""Words follow the intervals, and nothing but the intervals."""

import pytest
from kvtriage.eval.report.section import Comparison, verdict
from kvtriage.eval.statistics import Interval
from kvtriage.eval.table import markdown, plain, signed

BELOW, ABOVE = Interval(-0.012, -0.02, -0.006, 12), Interval(0.3, 0.1, 0.5, 12)
NEITHER = Interval(0.0, -0.1, 0.1, 12)


@pytest.mark.parametrize(
    "intervals, words",
    [
        ([BELOW, BELOW, NEITHER], "holds in direction"),
        ([BELOW, NEITHER], "holds only in part"),
        ([ABOVE, ABOVE, NEITHER], "does not hold, the order is the other way round"),
        ([ABOVE, NEITHER], "does not hold, in part the order is the other way round"),
        ([NEITHER, NEITHER], "cannot be told here"),
        ([BELOW, BELOW, BELOW, ABOVE], "depends"),
    ],
)
def test_verdicts(intervals, words):
    line = verdict("Claim", [Comparison(f"case {i}", each) for i, each in enumerate(intervals)])
    assert line.startswith(f"Claim: **{words}**; ")
    assert f"of {len(intervals)} comparisons" in line


def test_a_verdict_names_what_speaks_for_and_against():
    line = verdict("C", [Comparison("a", BELOW), Comparison("b", ABOVE), Comparison("c", NEITHER)])
    assert line == (
        "C: **depends**; 1 of 3 comparisons for it (a), 1 against it (b), 1 not told apart."
    )
    assert verdict("C", [Comparison("a", None)]) == "C: not measured."


def test_numbers():
    assert plain(BELOW) == "-0.012 [-0.020, -0.006]" and plain(None) == "-"
    assert signed(BELOW) == "**-0.012 [-0.020, -0.006]**"
    assert signed(Interval(-1.0, -2.0, 0.5, 9, below=7), 1, counted=True) == "-1.0 [-2.0, +0.5] 7/9"
    assert signed(NEITHER, 1) == "+0.0 [-0.1, +0.1]"
    assert plain(Interval(2.0, 2.0, 2.0, 1), 1) == "2.0"  # one sample has no interval
    assert plain(Interval(-0.0001, -0.0004, 0.2, 9)) == "0.000 [0.000, 0.200]"
    assert markdown(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
