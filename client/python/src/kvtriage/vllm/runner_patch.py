"""The one method of vLLM that is replaced: GPUModelRunner._prepare_inputs (V1 model runner).

Everything in vLLM goes on counting logical tokens: token lists, num_computed_tokens, positions, limits. Three
things must be physical, that is without the dropped tokens: the slots of new rows and the lengths for
attention, which are made in this method, and block counts (scheduler_side.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from vllm.v1.worker.gpu_model_runner import GPUModelRunner


class Lengths(Protocol):
    def begin_step(self, runner: Any, scheduled: Any) -> None:
        """The batch is up to date, nothing is computed yet."""

    def dropped(self, request_ids: list[str]) -> list[int]:
        """Per request: tokens that have no row."""


_current: list[Lengths] = []  # of the last install


def install(lengths: Lengths) -> None:
    """In the worker's process; a second engine in the same process takes the place of the first."""
    _current[:] = [lengths]
    inner = GPUModelRunner._prepare_inputs
    if not hasattr(inner, "kvtriage_lengths"):
        GPUModelRunner._prepare_inputs = _with_physical_lengths(inner)


def _with_physical_lengths(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def prepare_inputs(self: Any, scheduler_output: Any, num_scheduled_tokens: Any) -> Any:
        lengths, batch = _current[0], self.input_batch
        lengths.begin_step(self, scheduler_output)
        count = batch.num_reqs
        dropped = np.array(lengths.dropped(batch.req_ids[:count]), dtype=np.int32)
        if not dropped.any():
            return inner(self, scheduler_output, num_scheduled_tokens)
        per_token = torch.from_numpy(np.repeat(dropped, num_scheduled_tokens)).to(self.device)
        table = batch.block_table
        logical_slots = table.compute_slot_mapping

        def physical_slots(requests: int, starts: Any, positions: Any) -> Any:
            return logical_slots(requests, starts, positions - per_token)

        table.compute_slot_mapping = physical_slots
        try:
            made = inner(self, scheduler_output, num_scheduled_tokens)
        finally:
            del table.compute_slot_mapping  # the instance attribute: the method is there again
        rows = torch.from_numpy(dropped)
        self.seq_lens[:count] -= rows.to(self.device)
        self.optimistic_seq_lens_cpu[:count] -= rows
        return made

    prepare_inputs.kvtriage_lengths = True  # type: ignore[attr-defined]
    return prepare_inputs
