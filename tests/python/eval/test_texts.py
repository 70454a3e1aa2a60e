"""Passages are runs of the text, and the same ones every time."""

import pytest
from kvtriage.eval.texts import Text, load_text, passages


def encode(text: str) -> list[int]:
    return [ord(letter) for letter in text]


TEXTS = [Text("one", "".join(chr(97 + i % 26) for i in range(1000))), Text("two", "0123456789" * 30)]


def test_passages_are_runs_that_do_not_overlap():
    drawn = passages(TEXTS, encode, 50, 20, seed=4)
    assert len({passage.name for passage in drawn}) == 20
    for passage in drawn:
        name, place = passage.name.split("@")
        start = int(place.split("+")[0])
        text = next(text for text in TEXTS if name == f"{text.name}:{text.digest}")
        assert list(passage.ids) == encode(text.content)[start : start + 50]
        assert start % 50 == 0


def test_more_passages_begin_with_the_fewer():
    assert passages(TEXTS, encode, 50, 20, seed=4)[:5] == passages(TEXTS, encode, 50, 5, seed=4)
    assert passages(TEXTS, encode, 50, 5, seed=5) != passages(TEXTS, encode, 50, 5, seed=4)


def test_too_short_a_text_is_said():
    with pytest.raises(ValueError, match="hold 26 passages of 50 tokens, 27 are needed"):
        passages(TEXTS, encode, 50, 27, seed=0)


def test_files_and_folders(tmp_path):
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "c.md").write_text("not this")
    assert load_text(str(tmp_path)).content == "first\n\nsecond"
    assert load_text(str(tmp_path / "b.txt")).name == "b"
    with pytest.raises(FileNotFoundError):
        load_text(str(tmp_path / "missing.txt"))


def test_the_default_text_is_at_hand():
    text = load_text("python")
    assert len(text.content) > 300_000 and "statement" in text.content
