"""The code blocks of client/python/README.md do what they say: each is run, in order, in one namespace.

A block that opens with ```python is run; one that opens with ```python gpu is for a machine with a GPU
and is only compiled. A line that fails is reported by its number in the README.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kvtriage

README = Path(__file__).resolve().parents[3] / "client" / "python" / "README.md"
FENCE = re.compile(r"^```(python(?: gpu)?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block of code; `line` is the number of its first line in the README."""

    language: str
    line: int
    code: str


def blocks(text: str) -> Iterator[Block]:
    for match in FENCE.finditer(text):
        yield Block(match[1], text.count("\n", 0, match.start(2)) + 1, match[2])


def test_finds_blocks_and_their_lines() -> None:
    text = "a\n```python\nx = 1\n```\n\n```sh\nls\n```\n```python gpu\ny\nz\n```\n"
    assert list(blocks(text)) == [Block("python", 3, "x = 1\n"), Block("python gpu", 10, "y\nz\n")]


def test_code_blocks_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = list(blocks(README.read_text()))
    assert any(block.language == "python" for block in found), f"no code in {README}"
    namespace: dict[str, object] = {"__name__": "readme"}
    with kvtriage.PrivateService() as service:
        monkeypatch.setenv("KVTRIAGE_ENDPOINT", service.endpoint)
        for block in found:
            code = compile("\n" * (block.line - 1) + block.code, str(README), "exec")
            if block.language == "python":
                print(f"{README.name}:{block.line}, service at {os.environ['KVTRIAGE_ENDPOINT']}")
                exec(code, namespace)  # noqa: S102 (our own README)
