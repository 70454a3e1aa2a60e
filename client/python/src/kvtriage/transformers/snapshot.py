"""What a SidecarCache held at one moment."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvtriage.transformers.holes import Holes
from kvtriage.transformers.kept_map import KeptMap
from kvtriage.transformers.query_capture import CapturedQueries
from kvtriage.transformers.schedule import Schedule


@dataclass(frozen=True)
class Snapshot:
    """Made by SidecarCache.snapshot, for its restore: many policies on one prefill."""

    rows: torch.Tensor  # [layers, 2, batch, kv_heads, rows, head_dim]
    captured: CapturedQueries
    rows_captured: int
    dropped: int
    kept: KeptMap
    schedule: Schedule
    budget: int | None
    padded: bool
    holes: Holes | None
