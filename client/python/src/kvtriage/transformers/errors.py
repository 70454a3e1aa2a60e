"""What the adapter raises. Everything else that can go wrong with the service is a log line and a count."""

from __future__ import annotations

from collections.abc import Sequence


class UnsupportedModel(ValueError):
    """The model, or how it is configured, cannot run on a compressed cache. The text names the setting."""


class KvDamaged(RuntimeError):
    """Rows of the cache are lost: what it holds must not be read again. Call reset() and compute anew.

    `generate` of this package does that once by itself.
    """

    def __init__(self, sequence_ids: Sequence[int], message: str) -> None:
        super().__init__(message)
        self.sequence_ids = tuple(sequence_ids)
