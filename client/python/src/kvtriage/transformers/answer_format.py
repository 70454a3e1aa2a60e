"""How an eviction's answer names the kept rows: as exactly as the service's largest answer allows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvtriage import KeptFormat

# At least what the service counts for the parts of an answer that are not kept sets, in bytes.
_FIXED = 4096
_SEQUENCE = 256
_LAYER = 192
_HEAD = 32  # its count, and five numbers of quality


@dataclass(frozen=True)
class AnswerFormat:
    """limit: ServerLimits.max_response_bytes. An answer that could exceed it is refused, and nothing moves."""

    limit: int
    batch: int
    layers: int
    kv_heads: int

    def choose(self, rows: int, kept: int | None) -> KeptFormat:
        """Of a call about `rows` rows per sequence that keeps `kept` per head, on average; None: not known.

        INDICES as long as they fit, as every service knows them, then BITMAP. COUNTS, which say only how many
        rows a head kept, where neither does.
        """
        per_list = {KeptFormat.INDICES: 4 * min(rows, kept or rows), KeptFormat.BITMAP: (rows + 7) // 8}
        for kept_format, size in per_list.items():
            if self._bytes(size) <= self.limit:
                return kept_format
        return KeptFormat.COUNTS

    def _bytes(self, per_list: int) -> int:
        layer = _LAYER + self.kv_heads * (_HEAD + per_list)
        return _FIXED + self.batch * (_SEQUENCE + self.layers * layer)


def rows_of(rows: int, kept_tokens: int | None, kept_ratio: float | None) -> int | None:
    """What a budget keeps of `rows` rows, at most."""
    if kept_ratio is not None:
        return math.ceil(rows * kept_ratio)
    return kept_tokens
