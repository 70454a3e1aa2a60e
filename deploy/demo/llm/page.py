"""The picture for a browser: the whole prompt once per trial, a token the paler the fewer heads kept it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from prompt import NeedlePrompt
from trial import Trial

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #16202c; }
body { max-width: 70em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { text-align: right; padding: .25em .8em; border-bottom: 1px solid #d5dbe3; }
th:first-child, td:first-child, td.answer { text-align: left; }
details { margin: 1em 0; }
summary { cursor: pointer; font-weight: 600; }
.text { white-space: pre-wrap; line-height: 1.7; }
.text span { border-radius: 2px; }
.needle { outline: 2px solid #c2410c; }
.question { border-bottom: 2px solid #1d4ed8; }
"""


def page(trials: Sequence[Trial], prompt: NeedlePrompt, pieces: Sequence[str], model: str) -> str:
    """A whole HTML document. `pieces`: the text of each token that the cache holds."""
    rows = "\n".join(_row(trial, trials[0], prompt.answer) for trial in trials)
    smallest = min(trial.kept_ratio for trial in trials)
    texts = "\n".join(_text(trial, prompt, pieces, trial.kept_ratio == smallest) for trial in trials[1:])
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>kvtriage: which tokens stayed</title>
<style>{STYLE}</style>
<h1>Which tokens stayed</h1>
<p>{escape(model)}, a prompt of {len(prompt.ids):,} tokens. {escape(prompt.question_text)}
The right answer is <b>{escape(prompt.answer)}</b>.</p>
<table>
<tr><th>policy</th><th>answer</th><th>log p(right answer)</th><th>cache</th>
<th>retained mass</th><th>output error</th></tr>
{rows}
</table>
<p>A token's shade is the share of layers and KV heads that kept it. Outlined: the answer. Underlined: the
question, which the window that votes can see.</p>
{texts}
</html>
"""


def _row(trial: Trial, full: Trial, answer: str) -> str:
    mark = "✓" if answer in trial.answer else "✗"
    return (
        f'<tr><td>{escape(trial.name)}</td><td class="answer">{mark} {escape(trial.answer)}</td>'
        f"<td>{trial.log_probability:.2f}</td>"
        f"<td>{trial.kept_bytes / 1e6:.1f} MB ({trial.kept_bytes / full.kept_bytes:.0%})</td>"
        f"<td>{trial.mass:.3f}</td><td>{trial.error:.3f}</td></tr>"
    )


def _text(trial: Trial, prompt: NeedlePrompt, pieces: Sequence[str], opened: bool) -> str:
    spans = []
    for number, (piece, share) in enumerate(zip(pieces, trial.kept_share, strict=True)):
        kind = "needle" if number in prompt.needle else "question" if number in prompt.question else ""
        spans.append(
            f'<span class="{kind}" style="background:rgba(21,128,61,{share:.2f})" '
            f'title="{share:.0%}">{escape(piece)}</span>'
        )
    return (
        f"<details{' open' if opened else ''}><summary>{escape(trial.name)}</summary>"
        f'<div class="text">{"".join(spans)}</div></details>'
    )
