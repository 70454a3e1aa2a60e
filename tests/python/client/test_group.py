"""Ranks of a tensor-parallel model: one set for all of them, or none moves."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import kvtriage
import numpy as np
from kvtriage import Outcome

RANKS, HEADS, ROWS, SIZE, KEPT, SEED = 2, 2, 64, 8, 16, 9


class Rank:
    """Its own session, its own half of the KV heads."""

    def __init__(self, endpoint: str, number: int, noise: np.random.Generator) -> None:
        self.session, self.number = kvtriage.connect(endpoint, rank=number, world_size=RANKS), number
        plane = HEADS * ROWS * SIZE * 4
        self.memory = kvtriage.HostMemory(3 * plane)
        self.k, self.v = (self.memory.array((HEADS, ROWS, SIZE), np.float32, n * plane) for n in range(2))
        self.q = self.memory.array((1, HEADS, SIZE), np.float32, 2 * plane)  # one row
        for cells in (self.k, self.v, self.q):
            cells[:] = noise.normal(size=cells.shape)
        here = kvtriage.Region.of_this_call(0)
        k, v = (
            kvtriage.contiguous_view(here, at, HEADS, ROWS, SIZE, kvtriage.DType.F32) for at in (0, plane)
        )
        layer = kvtriage.LayerSpec(q_heads=HEADS, kv_heads=HEADS, k=k, v=v)
        spec = kvtriage.CacheSpec([layer], num_layers=1)
        self.lent = self.session.register(kvtriage.Registration([self.memory.lend()], [spec]))
        self.queries_at = 2 * plane

    def compress(self, key: bytes, kept: int, deadline_ms: int = 10_000) -> kvtriage.CompressOutcome:
        q = kvtriage.dense_tensor(
            self.lent.regions[0], self.queries_at, kvtriage.DType.F32, 1, 1, HEADS, SIZE
        )
        parts = kvtriage.PolicyParts(
            granularity=kvtriage.Granularity.PER_LAYER, budget=kvtriage.Budget(kept_tokens=kept)
        )
        request = kvtriage.CompressRequest(
            cache=self.lent.caches[0],
            sequences=[
                kvtriage.Sequence(
                    sequence_id=1,
                    logical_len=ROWS,
                    physical_len=ROWS,
                    table=[0],
                    sharing=kvtriage.Sharing.ALL_PRIVATE,
                    rows_count=1,
                )
            ],
            policy=kvtriage.Policy("tova", parts),
            inputs=kvtriage.ScoreInputs(
                kvtriage.QueryWindow(q, kvtriage.QueryStage.AFTER_ROPE), softmax_scale=1.0
            ),
            act=kvtriage.InPlace(),
            group=kvtriage.Group(key, self.number, RANKS, HEADS * self.number, HEADS * RANKS),
        )
        return self.session.compress(request, kvtriage.CallOptions(deadline_ms=deadline_ms))

    def attention(self) -> np.ndarray:
        """Of the one row, per head, in float64."""
        logits = np.einsum("hd,hnd->hn", self.q[0].astype(float), self.k.astype(float))
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)


def test_one_set_for_all_ranks_or_none(service: kvtriage.PrivateService) -> None:
    print(f"seed {SEED}")
    noise = np.random.default_rng(SEED)
    ranks = [Rank(service.endpoint, number, noise) for number in range(RANKS)]
    assert ranks[0].session.get_server_info().groups
    before = [rank.k.copy() for rank in ranks]

    alone = ranks[0].compress(os.urandom(16), KEPT, deadline_ms=300)  # the other never comes
    assert alone.outcome is Outcome.UNCHANGED and alone.quarantine == 0
    assert alone.error is not None and alone.error.reason == "group_mismatch"

    with ThreadPoolExecutor() as pool:
        key = os.urandom(16)
        apart = list(pool.map(lambda rank: rank.compress(key, KEPT + rank.number), ranks))
        assert [outcome.outcome for outcome in apart] == [Outcome.UNCHANGED] * RANKS
        assert all((rank.k == old).all() for rank, old in zip(ranks, before))

        # TOVA of all heads of all ranks; the row itself is the newest of those that stay.
        attention = np.concatenate([rank.attention() for rank in ranks]).sum(0)
        key = os.urandom(16)
        together = list(pool.map(lambda rank: rank.compress(key, KEPT), ranks))
    sets = [outcome.one_result().kept_sets.at(0, 0).tolist() for outcome in together]
    assert sets[0] == sets[1] and len(sets[0]) == KEPT
    free = set(sets[0]) - {ROWS - 1}
    assert free <= set(np.argsort(-attention)[: KEPT + 1].tolist())
    for rank, old in zip(ranks, before):
        assert (rank.k[:, :KEPT] == old[:, sets[0]]).all()
        rank.session.close()
