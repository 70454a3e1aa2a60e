"""CacheBlend: chunks that were cached alone, glued together, against a full prefill.

Two kinds of samples. `text`: a passage cut into chunks; what follows it is predicted, and its chunks lean on
each other. `question`: a prompt with a question behind its chunks; the right reply is predicted, and the
model answers. Compared are a full prefill, plain reuse (keys turned to their places, nothing recomputed but
the suffix), the rows recomputed whose values diverge most, and, for contrast, the same rows with the mask
of many implementations, aligned to the bottom right, which lets a row see its own future.

`seconds`: from cached chunks to the first token's logits; the chunks' own prefill is not in it.
`output_error`: pooled relative difference of the attention outputs of the tokens that follow from those
after a full prefill, all fed the same tokens; mean over layers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from transformers import Cache, DynamicCache

from kvtriage import Outcome, Session
from kvtriage.eval.chat import Chat
from kvtriage.eval.measures.divergence import mean_divergence
from kvtriage.eval.measures.measure import Sample
from kvtriage.eval.models import LoadedModel
from kvtriage.eval.tasks import build, found_share
from kvtriage.eval.texts import Passage
from kvtriage.transformers import Blender, Chunk, SidecarCache, glue, prefill_chunk
from kvtriage.transformers.attention_tap import attention_modules

FULL, REUSE, LEAKING = "full prefill", "plain reuse", ", leaking mask"
TASKS = ("needle-multi-key", "variable-tracking")  # whose context is made of sentences
SUFFIX = 32  # tokens of a passage that were not cached
SPARE = 4  # tokens that a greedy reply may be longer than the right one


@dataclass(frozen=True, slots=True)
class Glued:
    """Tokens in order: cached chunks, what comes fresh behind them, and what is predicted."""

    chunks: list[torch.Tensor]
    suffix: torch.Tensor
    following: torch.Tensor
    answers: tuple[str, ...] = ()

    @property
    def ids(self) -> torch.Tensor:
        return torch.cat([*self.chunks, self.suffix])


class Leaking(Blender):
    """The wrong mask: row i of n sees all but the last n - 1 - i keys, whatever its own position."""

    def visible(self, rows: torch.Tensor, limits: torch.Tensor, tokens: int) -> torch.Tensor:
        last = tokens - len(rows) + 1 + torch.arange(len(rows))
        return torch.arange(tokens) < last[:, None]


class Blend:
    name = "blend"

    def __init__(
        self,
        loaded: LoadedModel,
        session: Session,
        passages: Sequence[Passage],
        seeds: Sequence[int],
        tokens: int,
        chunks: int,
        ratio: float,
    ) -> None:
        """`tokens`: chunks and, of a passage, suffix; the rest of a passage is predicted."""
        self._loaded, self._session, self._chat = loaded, session, Chat(loaded)
        self._passages = {passage.name: passage for passage in passages}
        self._seeds, self._tokens, self._chunks, self._ratio = seeds, tokens, chunks, ratio

    def samples(self) -> list[Sample]:
        end = f"{self._tokens}/{self._chunks}"
        texts = [Sample(f"{name}/{end}", {"kind": "text"}) for name in self._passages]
        asked = [(task, seed) for seed in self._seeds for task in TASKS]
        return texts + [Sample(f"{task}/{seed}/{end}", {"kind": "question"}) for task, seed in asked]

    def cases(self, sample: Sample) -> list[str]:
        hkvd = f"HKVD {self._ratio:.0%}"
        return [FULL, REUSE, hkvd, hkvd + LEAKING]

    def measure(self, sample: Sample, cases: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
        glued = self._question(sample) if sample.tags["kind"] == "question" else self._text(sample)
        room = len(glued.ids) + len(glued.following) + SPARE
        chunks = [prefill_chunk(self._loaded.model, ids) for ids in glued.chunks]
        full: _Followed | None = None
        for label in (FULL, *(case for case in cases if case != FULL)):
            with ExitStack() as stack:
                cache: Cache = DynamicCache()
                if label != FULL:
                    cache = stack.enter_context(SidecarCache(self._loaded.model, self._session, room))
                started = time.monotonic()
                logits = self._prefill(label, cache, chunks, glued)
                seconds = time.monotonic() - started
                followed = self._follow(cache, logits, glued)
            full = full or followed
            if label in cases:
                yield label, {"seconds": seconds, **followed.against(full, glued.following)}

    def _text(self, sample: Sample) -> Glued:
        ids = torch.tensor(self._passages[sample.name.rsplit("/", 2)[0]].ids)
        cached = ids[: self._tokens - SUFFIX]
        return Glued(
            list(cached.tensor_split(self._chunks)), ids[len(cached) : self._tokens], ids[self._tokens :]
        )

    def _question(self, sample: Sample) -> Glued:
        task, seed, *_ = sample.name.split("/")
        encode = self._loaded.encode
        prompt = build(task, int(seed), self._tokens, lambda text: len(encode(text)))
        sentences = [f"{part}. " for part in (self._chat.opening + prompt.context).split(". ")]
        bounds = [round(len(sentences) * i / self._chunks) for i in range(self._chunks + 1)]
        texts = ["".join(sentences[a:b]) for a, b in pairwise(bounds)]
        suffix = encode(prompt.question + self._chat.turn) + encode(prompt.lead)
        return Glued(
            [torch.tensor(encode(text)) for text in texts],
            torch.tensor(suffix),
            torch.tensor(encode(prompt.reply)),
            prompt.answers,
        )

    @torch.inference_mode()
    def _prefill(self, label: str, cache: Cache, chunks: Sequence[Chunk], glued: Glued) -> torch.Tensor:
        """Fills the cache by the method; logits [V] of the last token. RuntimeError without a service."""
        model = self._loaded.model
        if isinstance(cache, SidecarCache) and label != REUSE:
            kind = Leaking if label.endswith(LEAKING) else Blender
            blended = kind(model, cache, self._ratio).blend(chunks, glued.suffix)
            if blended.chosen is None:
                raise RuntimeError("the service went away while chunks were blended")
            return blended.logits
        ids = glued.ids
        if isinstance(cache, SidecarCache):
            outcome = glue(cache, chunks)
            if outcome.outcome is not Outcome.APPLIED:
                raise RuntimeError(f"chunks were not glued: {outcome.error}")
            ids = glued.suffix
        logits: torch.Tensor = model(ids[None], past_key_values=cache, logits_to_keep=1).logits
        return logits[0, -1]

    @torch.inference_mode()
    def _follow(self, cache: Cache, logits: torch.Tensor, glued: Glued) -> _Followed:
        """Feeds what follows; with answers, the model replies by itself afterwards."""
        model, tokens = self._loaded.model, len(glued.ids)
        fed = glued.following[:-1]
        with attention_outputs(model) as outputs:
            more = model(fed[None], past_key_values=cache, use_cache=True).logits[0]
        match = None
        if glued.answers:
            cache.crop(tokens - 1)
            said = model.generate(
                glued.ids[None],
                past_key_values=cache,
                max_new_tokens=len(glued.following) + SPARE,
                do_sample=False,
            )
            match = found_share(glued.answers, self._chat.reply_text(said[0, tokens:].tolist()))
        return _Followed(torch.log_softmax(torch.cat([logits[None], more]), -1), outputs, match)


@dataclass(frozen=True, slots=True)
class _Followed:
    """What the tokens that follow did: log-probabilities [rows, V], attention outputs per layer, the match."""

    log_probs: torch.Tensor
    outputs: list[torch.Tensor]
    match: float | None

    def against(self, full: _Followed, following: torch.Tensor) -> dict[str, float]:
        picked = self.log_probs.gather(1, following[:, None])
        errors = [
            ((ours - true).square().sum() / true.square().sum()).sqrt()
            for ours, true in zip(self.outputs, full.outputs)
        ]
        values = {
            "kl": mean_divergence(full.log_probs, self.log_probs),
            "log_prob": float(picked.double().mean()),
            "output_error": float(torch.stack(errors).mean()),
        }
        return values if self.match is None else {**values, "match": self.match}


@contextmanager
def attention_outputs(model: Any) -> Iterator[list[torch.Tensor]]:
    """Collects what every layer's attention gives to its output projection, in the order of the layers."""
    outputs: list[torch.Tensor] = []

    def note(module: Any, args: tuple[torch.Tensor, ...]) -> None:
        outputs.append(args[0].clone())

    with ExitStack() as hooks:
        for module in attention_modules(model.get_decoder()):
            hook = module.o_proj.register_forward_pre_hook(note)
            hooks.callback(hook.remove)
        yield outputs
