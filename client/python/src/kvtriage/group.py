"""Ranks of a tensor-parallel model that decide together.

Each calls with its own part of the heads, and all get one set, or none moves a row (reason
"group_mismatch").
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    key: bytes  # 16 random bytes, equal on all ranks, new for each call
    rank: int
    size: int
    first_kv_head: int  # of this rank, in the model
    total_kv_heads: int  # of the model; a head that several ranks hold counts once
