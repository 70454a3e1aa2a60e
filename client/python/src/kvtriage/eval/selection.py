"""Asks the service which rows a policy would keep. Nothing is moved: one reading serves every policy."""

from __future__ import annotations

import torch

from kvtriage import CompressRequest, Policy, QueryStage, QueryWindow, ScoreInputs, Sequence
from kvtriage.eval.reading import Reading

# Kept rows, ascending, per layer and KV head.
KeptRows = list[list[torch.Tensor]]


def select(reading: Reading, policy: Policy) -> KeptRows:
    """The rows that stay of the reading's first `cut` rows.

    The policy sees the queries of those rows and no later one. KvtriageError when the service refuses it
    (an unknown name, or a policy that needs more than queries, keys and values).
    """
    shape = reading.loaded.geometry
    rows = reading.cut
    outcome = reading.session.compress(
        CompressRequest(
            cache=reading.cache,
            sequences=[
                Sequence(
                    sequence_id=1,
                    generation=reading.generation,
                    logical_len=rows,
                    physical_len=rows,
                    table=[0],
                    rows_begin=0,
                    rows_count=rows,
                )
            ],
            policy=policy,
            inputs=ScoreInputs(
                QueryWindow(reading.query_tensor(), QueryStage.AFTER_ROPE), softmax_scale=reading.scale
            ),
        )
    )
    sequence = outcome.one_result()
    if sequence.noop:
        every = torch.arange(rows)
        return [[every] * shape.kv_heads for _ in range(shape.layers)]
    kept = sequence.kept_sets
    return [
        [torch.tensor(kept.at(layer, head), dtype=torch.long) for head in range(shape.kv_heads)]
        for layer in range(shape.layers)
    ]


def mean_kept(kept: KeptRows) -> float:
    """Rows per layer and head."""
    counts = [len(rows) for heads in kept for rows in heads]
    return sum(counts) / len(counts)


def longest(kept: KeptRows) -> int:
    """Rows of the longest list."""
    return max(len(rows) for heads in kept for rows in heads)
