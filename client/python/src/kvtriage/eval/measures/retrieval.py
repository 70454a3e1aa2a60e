"""Does the model still find the answer in the prompt?

Two settings, as in the OBCache paper. `aware`: the question is part of what is read before the cut, so the
window has seen it. `agnostic`: the context is cut first, and the question comes afterwards. In both the
beginning of the reply is fed after the cut, so that no token of the answer is predicted by the full cache.

`log_prob` is the mean log-probability (nats) of the right reply's tokens, fed one after the other; `match`
is the share of the answers that a greedy reply names. A small model often fails the match long before its
probabilities have lost everything, so read both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kvtriage.eval.cases import Case
from kvtriage.eval.chat import Chat
from kvtriage.eval.continuation import Continuation
from kvtriage.eval.measures.measure import Sample
from kvtriage.eval.reading import Reading
from kvtriage.eval.selection import longest, select
from kvtriage.eval.tasks import Prompt, build, found_share

SETTINGS = ("aware", "agnostic")
FULL = "full cache"
BATCH = 16
SPARE = 4  # tokens that a greedy reply may be longer than the right one


@dataclass(frozen=True, slots=True)
class Pieces:
    """Tokens in order: what is read and cut, what is fed afterwards, and the right reply."""

    read: list[int]
    fed: list[int]
    reply: list[int]


class Retrieval:
    name = "retrieval"

    def __init__(
        self,
        reading: Reading,
        tasks: Sequence[str],
        seeds: Sequence[int],
        tokens: int,
        cases: Sequence[Case],
    ) -> None:
        """`tokens`: of the context, at most. The full cache is always measured as well."""
        self._reading, self._tokens = reading, tokens
        self._chat = Chat(reading.loaded)
        self._cases: dict[str, Case | None] = {FULL: None, **{case.label: case for case in cases}}
        self._order = [(task, setting, seed) for seed in seeds for task in tasks for setting in SETTINGS]

    def samples(self) -> list[Sample]:
        return [
            Sample(f"{task}/{setting}/{self._tokens}/{seed}", {"task": task, "setting": setting})
            for task, setting, seed in self._order
        ]

    def cases(self, sample: Sample) -> list[str]:
        return list(self._cases)

    def measure(self, sample: Sample, cases: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
        reading, encode = self._reading, self._reading.loaded.encode
        seed = int(sample.name.rpartition("/")[2])
        prompt = build(sample.tags["task"], seed, self._tokens, lambda text: len(encode(text)))
        pieces = self._pieces(prompt, sample.tags["setting"])
        reading.read(pieces.read + pieces.fed, len(pieces.read))
        every = Case("snapkv", 1.0)  # keeps all rows, whichever policy is named
        chosen = {label: select(reading, (self._cases[label] or every).to_policy()) for label in cases}
        order = sorted(cases, key=lambda label: longest(chosen[label]))
        for start in range(0, len(order), BATCH):
            labels = order[start : start + BATCH]
            room = len(pieces.fed) + len(pieces.reply) + SPARE
            going_on = Continuation(reading, [chosen[label] for label in labels], room)
            first = going_on.forward(torch.tensor(pieces.fed), 1)
            scores = reply_log_probs(going_on, first, pieces.reply)
            texts = self._greedy(going_on, first, len(pieces.reply) + SPARE)
            for label, score, text in zip(labels, scores, texts):
                yield label, {"log_prob": score, "match": found_share(prompt.answers, text)}

    def _pieces(self, prompt: Prompt, setting: str) -> Pieces:
        encode = self._reading.loaded.encode
        before = encode(self._chat.opening + prompt.context)
        question = encode(prompt.question + self._chat.turn)
        lead, reply = encode(prompt.lead), encode(prompt.reply)
        if setting == "aware":
            return Pieces(before + question, lead, reply)
        return Pieces(before, question + lead, reply)

    def _greedy(self, going_on: Continuation, first: torch.Tensor, count: int) -> list[str]:
        """What each policy says by itself after the lead, cut at the end of its turn."""
        fed, token, said = going_on.fed, first[:, -1].argmax(-1), []
        for _ in range(count - 1):
            said.append(token)
            token = going_on.forward(token[:, None], 1)[:, -1].argmax(-1)
        said.append(token)
        going_on.rewind(fed)
        return [self._chat.reply_text(ids) for ids in torch.stack(said, 1).tolist()]


def reply_log_probs(going_on: Continuation, first: torch.Tensor, reply: Sequence[int]) -> list[float]:
    """Mean log-probability of the reply's tokens, per policy. `first` [B, 1, V] predicts its first token."""
    fed = going_on.fed
    ids = torch.tensor(reply)
    logits = first
    if len(reply) > 1:
        logits = torch.cat([first, going_on.forward(ids[:-1], len(reply) - 1)], 1)
    going_on.rewind(fed)
    logits = torch.log_softmax(logits, -1)
    picked = logits.gather(-1, ids[None, :, None].expand(logits.shape[0], -1, 1))[..., 0]
    return [float(x) for x in picked.double().mean(1)]
