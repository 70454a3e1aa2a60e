"""One layer of a SidecarCache: rows in lent memory whose address never changes."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import CacheLayerMixin


class SidecarLayer(CacheLayerMixin):
    """Keys and values [batch, kv_heads, capacity, head_dim], of which the first `rows` are in use.

    `position_gap` is the position of the next token minus its row: how many rows were dropped by
    evictions. The cache sets it for all layers; 0 for one that renumbers.
    """

    is_compileable = False  # a compiled graph has the lengths of one step in it
    is_croppable = True  # by the cache, all layers together
    is_sliding = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self._all_keys, self._all_values = keys, values
        self.is_initialized = True
        self.position_gap = 0
        self.set_rows(0)

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def capacity(self) -> int:
        return self._all_keys.shape[-2]

    def set_rows(self, rows: int) -> None:
        """Rows from `rows` on do not count any more."""
        self._rows = rows
        self.keys, self.values = self.used()

    def used(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of the keys and values of the rows in use."""
        return self._all_keys[:, :, : self._rows], self._all_values[:, :, : self._rows]

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing: the memory is there from the beginning."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes new rows behind the others and returns views of all of them."""
        if torch.is_grad_enabled() and key_states.requires_grad:
            # Nothing would ever let go of the graph: it would grow from step to step behind the lent rows.
            raise RuntimeError("no gradient passes through a lent cache: run the model under torch.no_grad()")
        begin, end = self._rows, self._rows + key_states.shape[-2]
        if key_states.shape[0] != self._all_keys.shape[0]:
            raise ValueError(
                f"{key_states.shape[0]} sequences came, the cache was made with batch={self._all_keys.shape[0]} "
                "(each returned sequence counts; beam search is not supported)"
            )
        if end > self.capacity:
            raise ValueError(f"{end} rows do not fit the capacity of {self.capacity}: make a larger cache")
        self._all_keys[:, :, begin:end].copy_(key_states)
        self._all_values[:, :, begin:end].copy_(value_states)
        self.set_rows(end)
        return self.used()

    def get_seq_length(self) -> int:
        """The position of the next token."""
        return self._rows + self.position_gap

    def get_mask_sizes(self, query: torch.Tensor | int) -> tuple[int, int]:
        """Length and offset of the keys of a forward pass, by its positions or, in newer versions, its length.

        The offset lets row r count as position r + gap: the new rows get their own positions, and all older
        ones stay visible. With offset 0 a token of a longer input would see tokens of its own future.
        """
        new = query if isinstance(query, int) else query.shape[0]
        return self._rows + new, self.position_gap

    def get_max_cache_shape(self) -> int:
        """-1, no limit to the length of the text: the capacity bounds rows, and evictions make room."""
        return -1

    def get_max_length(self) -> int:
        """get_max_cache_shape, as later versions of transformers name it."""
        return self.get_max_cache_shape()

    def reset(self) -> None:
        self.position_gap = 0
        self.set_rows(0)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        raise ValueError(
            "beam search is not supported: sequences would exchange rows that the service knows apart"
        )

    def batch_repeat_interleave(self, repeats: int) -> None:
        raise ValueError("the number of sequences of a lent cache is fixed")

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        raise ValueError("the number of sequences of a lent cache is fixed")

    def offload(self) -> None:
        raise ValueError("a lent cache cannot be offloaded: the service maps its memory")
