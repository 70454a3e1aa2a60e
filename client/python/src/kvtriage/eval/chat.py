"""Puts a question into the form that a model was taught."""

from __future__ import annotations

from collections.abc import Sequence

from kvtriage.eval.models import LoadedModel

_MARK = "@@TEXT@@"


class Chat:
    """The pieces around a user's text, from the model's own chat template.

    `opening` comes before the text; `turn` ends it and begins the reply. A model without a template gets
    plain text with the question in between.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        tokenizer = loaded.tokenizer
        self.opening, self.turn = "", "\nAnswer: "
        if getattr(tokenizer, "chat_template", None):
            whole = tokenizer.apply_chat_template(
                [{"role": "user", "content": _MARK}], tokenize=False, add_generation_prompt=True
            )
            self.opening, self.turn = whole.split(_MARK)

    def reply_text(self, ids: Sequence[int]) -> str:
        """A reply up to the end of its turn."""
        end = self._loaded.tokenizer.eos_token_id
        ids = list(ids)
        return self._loaded.decode(ids[: ids.index(end)] if end in ids else ids)
