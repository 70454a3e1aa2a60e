"""The same kept rows as kvpress, and both the same as the float64 reference."""

from __future__ import annotations

import kvtriage
import models
import pytest
from captured_layer import CapturedLayer
from comparison import kept_by_press, kept_by_reference, kept_by_service
from comparisons import SAME_KEPT_SET
from kept_rows import assert_same

REMOVED = (0.3, 0.5, 0.75)  # compression ratios; 0.75 leaves more rows than the window of 64


def compare(name: str, session: kvtriage.Session, layer: CapturedLayer, ratio: float) -> None:
    what = SAME_KEPT_SET[name]
    theirs = kept_by_press(what, layer, ratio)
    reference, score = kept_by_reference(what, layer, ratio)
    assert_same(reference, theirs, score, what.across_heads)
    assert_same(kept_by_service(what, session, layer, ratio), theirs, score, what.across_heads)


@pytest.mark.parametrize("name", SAME_KEPT_SET)
@pytest.mark.parametrize("model", [*models.SHAPES, "qwen3"])
def test_of_random_models(
    name: str, model: str, session: kvtriage.Session, random_layers: dict[str, list[CapturedLayer]]
) -> None:
    for layer in random_layers[model]:
        for ratio in REMOVED:
            compare(name, session, layer, ratio)


@pytest.mark.parametrize("name", SAME_KEPT_SET)
def test_of_a_real_model(name: str, session: kvtriage.Session, real_layers: list[CapturedLayer]) -> None:
    for layer in real_layers:
        for ratio in REMOVED:
            compare(name, session, layer, ratio)
