"""The long prompt with one needle, as tokens, and where the needle lies among them."""

from __future__ import annotations

from dataclasses import dataclass

from kvtriage.eval.chat import Chat
from kvtriage.eval.models import LoadedModel
from kvtriage.eval.tasks.build import build


@dataclass(frozen=True)
class NeedlePrompt:
    """`ids` end where the answer begins. The question is among the last tokens, so the window sees it."""

    ids: list[int]
    needle: range  # tokens that hold the answer
    question: range  # tokens from the question to the end
    question_text: str
    answer: str  # the digits alone
    reply_ids: list[int]  # the right continuation


def make_prompt(loaded: LoadedModel, tokens: int, seed: int) -> NeedlePrompt:
    """A prompt whose text has about so many tokens. Equal seeds make equal prompts."""
    task = build("needle-single", seed, tokens, lambda text: len(loaded.encode(text)))
    chat = Chat(loaded)
    before, answer, after = task.context.partition(task.answers[0])
    start = len(loaded.encode(chat.opening + before))
    end = len(loaded.encode(chat.opening + before + answer))
    context = loaded.encode(chat.opening + before + answer + after)
    ids = context + loaded.encode(task.question + chat.turn + task.lead)
    return NeedlePrompt(
        ids=ids,
        needle=range(start, end),
        question=range(len(context), len(ids)),
        question_text=task.question.strip(),
        answer=task.answers[0],
        reply_ids=loaded.encode(task.reply),
    )
