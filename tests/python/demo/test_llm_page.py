"""The picture for a browser: every token is there, whatever it contains."""

import numpy as np
from page import page
from prompt import NeedlePrompt
from trial import FULL, Trial


def trial(policy: str, ratio: float, share: list[float]) -> Trial:
    return Trial(policy, ratio, "4711.", -1.5, int(1000 * ratio), 0.25, 0.75, np.array(share))


def test_every_token_is_shown_once_per_policy() -> None:
    prompt = NeedlePrompt([5, 6, 7, 8], range(1, 2), range(2, 4), "What is <it>?", "4711", [9])
    trials = [
        trial(FULL, 1.0, [1, 1, 1]),
        trial("snapkv", 0.6, [1, 0.5, 1]),
        trial("snapkv", 0.2, [0, 0.5, 1]),
    ]
    html = page(trials, prompt, ["<b>", " 4711", "\n"], "tiny")
    assert html.count('class="needle" style="background:rgba(21,128,61,0.50)" title="50%"> 4711</span>') == 2
    assert html.count("&lt;b&gt;") == 2 and "<b>\n" not in html and "What is &lt;it&gt;?" in html
    assert html.count('class="question"') == 2
    assert "<details open><summary>snapkv 20%" in html and "<details><summary>snapkv 60%" in html
    assert "✓ 4711." in html and "(60%)" in html
