"""Text to measure on: any file, or the prose that every Python installation carries.

The default, `python`, is the language reference in `pydoc_data.topics` (about 460 kB, PSF licence): it is
on every machine that can run this, so a result can be made again without a download. It is technical prose
with some code, the model has most likely seen it, and its words differ a little between Python versions;
a report names the source and its digest. For literature give files, for instance plain-text books.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Text:
    name: str
    content: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Passage:
    """A run of tokens of one text. `name` finds it again: text, digest, first token, length."""

    name: str
    ids: tuple[int, ...]


def load_text(source: str) -> Text:
    """`python`, or a path: a UTF-8 file, or a folder whose *.txt files are read in order of their names."""
    if source == "python":
        from pydoc_data.topics import topics

        return Text("python", "\n\n".join(topics[name].strip() for name in sorted(topics)))
    path = Path(source)
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(f"no *.txt files in {path}")
    return Text(path.stem, "\n\n".join(file.read_text(encoding="utf-8") for file in files))


def passages(
    texts: Sequence[Text], encode: Callable[[str], Sequence[int]], length: int, count: int, seed: int
) -> list[Passage]:
    """`count` passages of `length` tokens that do not overlap, drawn from all places of all texts.

    The same seed draws the same passages; a larger count begins with those of a smaller one.
    """
    tokens = [list(encode(text.content)) for text in texts]
    places = [
        (number, slot * length) for number, ids in enumerate(tokens) for slot in range(len(ids) // length)
    ]
    if len(places) < count:
        raise ValueError(f"the texts hold {len(places)} passages of {length} tokens, {count} are needed")
    random.Random(seed).shuffle(places)
    return [
        Passage(
            f"{texts[number].name}:{texts[number].digest}@{start}+{length}",
            tuple(tokens[number][start : start + length]),
        )
        for number, start in places[:count]
    ]
