"""When a cache is due to be compacted."""

from __future__ import annotations


class Schedule:
    """At the end of a prefill, then every `every` generated tokens, and when the rows are used up.

    The end of a prefill is known only when the first token after it comes: a forward pass of several
    tokens may be one chunk of a longer prompt. So evictions are made just before a forward pass of one
    token, never behind a pass. A pass of several tokens generates, too, when rows were taken back just
    before it: it verifies drafts, and those of the pass before are settled by then.
    """

    def __init__(self, every: int) -> None:
        if every < 1:
            raise ValueError("every: at least 1 generated token lies between two evictions")
        self.every = every
        self.clear()

    def clear(self) -> None:
        self.prefilled = False  # rows of a prompt came since the last eviction
        self._generated = 0
        self._last_pass = 0  # its tokens
        self._took_back = False  # since then

    def due(self, new_tokens: int, room: int) -> bool:
        """Whether to evict before a forward pass of so many tokens into so many free rows."""
        ready = self.prefilled or self._generated >= self.every or room < new_tokens
        return ready and self._generates(new_tokens)

    def forward_done(self, new_tokens: int) -> None:
        if self._generates(new_tokens):
            self._generated += new_tokens
        else:
            self.prefilled = True
        self._last_pass = new_tokens
        self._took_back = False

    def took_back(self, tokens: int) -> None:
        """The newest rows were cropped; 0 of them when all drafts of a pass were right."""
        self._took_back = self._last_pass > 1
        self._generated = max(0, self._generated - tokens)

    def evicted(self) -> None:
        """An eviction was made, or could not be: the next one comes after `every` tokens."""
        self.prefilled = False
        self._generated = 0

    def turn_begins(self) -> None:
        """The next forward pass of several tokens is a prompt, also when rows were taken back before it."""
        self._took_back = False

    def copy(self) -> Schedule:
        other = Schedule(self.every)
        other.prefilled, other._generated = self.prefilled, self._generated
        other._last_pass, other._took_back = self._last_pass, self._took_back
        return other

    def _generates(self, new_tokens: int) -> bool:
        return new_tokens == 1 or self._took_back
