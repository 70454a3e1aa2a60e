"""kvpress against kvtriage on this CPU, in one run: the seconds to score and compress the cache of a
4,096-token prompt of Llama-3.1-8B's geometry, with the same kept sets.

    kvpress_bench.py [--rows 4096] [--layers 32] [--rounds 5]

Both get the same keys, values and window queries after RoPE, and the same number of threads. kvpress: what
SnapKVPress.compress does in the hook of every layer, which is score, topk and the copy of the kept rows to
new tensors; its query projection is the identity, so no side pays for the projection. kvtriage: one call
through the socket about all layers, which is scores, selection, the move in place, and the answer with all
kept indices read by the client. The rounds alternate; the median counts.

Exit status 1 when the kept sets differ by more than near-ties.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kvtriage
import numpy as np
import torch
from kvpress import SnapKVPress
from kvtriage.compress import Act
from kvtriage.compress_result import Timing

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "parity"))

from kept_rows import KeptRows, rows_of_copies

Q_HEADS, KV_HEADS, HEAD_SIZE = 32, 8, 128
WINDOW, KERNEL, KEPT_RATIO = 64, 5, 0.25
SEED = 20261201
SEQUENCE_IDS = itertools.count(1)  # every round compresses a new sequence

# How far apart the scores of swapped rows may lie, as a share of the score at the cut. kvpress rounds
# attention weights, their mean and the pooled score of a bf16 cache to bf16, so it cannot tell rows apart
# whose scores are within a few of its steps (2^-8); kvtriage sums in float32.
NEAR_TIE = {torch.float32: 1e-4, torch.bfloat16: 2.0**-5}
DTYPES = {torch.float32: kvtriage.DType.F32, torch.bfloat16: kvtriage.DType.BF16}


class Workload:
    """K and V of all layers in memory that the service maps, and the window queries of each layer.

    A few keys of every head lean towards the queries, so that attention is not flat.
    """

    def __init__(self, session: kvtriage.Session, dtype: torch.dtype, layers: int, rows: int) -> None:
        self.dtype, self.layers, self.rows = dtype, layers, rows
        random = torch.Generator().manual_seed(SEED)
        lean = torch.randn(layers, KV_HEADS, 1, HEAD_SIZE, generator=random)
        amount = torch.rand(layers, KV_HEADS, rows, 1, generator=random) ** 2
        self.original = torch.empty(layers, 2, KV_HEADS, rows, HEAD_SIZE, dtype=dtype)
        for layer in range(layers):
            self.original[layer].normal_(generator=random)
            self.original[layer, 0] += (0.5 * amount[layer] * lean[layer]).to(dtype)
        lean_of_queries = lean.repeat_interleave(Q_HEADS // KV_HEADS, dim=1).transpose(1, 2)
        queries = torch.randn(layers, WINDOW, Q_HEADS, HEAD_SIZE, generator=random) + lean_of_queries
        self.queries = queries.to(dtype)

        self.memory = kvtriage.HostMemory(self.original.nbytes + self.queries.nbytes)
        buffer = torch.frombuffer(self.memory.buffer, dtype=torch.uint8)
        self.cache_bytes = buffer[: self.original.nbytes]
        buffer[self.original.nbytes :].copy_(self.queries.reshape(-1).view(torch.uint8))
        self.restore()
        registered = session.register(
            kvtriage.Registration(regions=[self.memory.lend()], caches=[self._cache()])
        )
        self.region, self.cache = registered.regions[0], registered.caches[0]

    def restore(self) -> None:
        """Undoes an in-place compression."""
        self.cache_bytes.copy_(self.original.reshape(-1).view(torch.uint8))

    def request(self, act: Act) -> kvtriage.CompressRequest:
        queries = kvtriage.dense_tensor(
            self.region, self.original.nbytes, DTYPES[self.dtype], self.layers, WINDOW, Q_HEADS, HEAD_SIZE
        )
        sequence = kvtriage.Sequence(
            sequence_id=next(SEQUENCE_IDS),
            logical_len=self.rows,
            physical_len=self.rows,
            table=[0],
            sharing=kvtriage.Sharing.ALL_PRIVATE,
            rows_count=WINDOW,
        )
        return kvtriage.CompressRequest(
            cache=self.cache,
            sequences=[sequence],
            act=act,
            policy=kvtriage.named_policy("snapkv", KEPT_RATIO),
            inputs=kvtriage.ScoreInputs(
                kvtriage.QueryWindow(queries, kvtriage.QueryStage.AFTER_ROPE), softmax_scale=HEAD_SIZE**-0.5
            ),
        )

    def _cache(self) -> kvtriage.CacheSpec:
        plane = self.original[0, 0].nbytes
        region = kvtriage.Region.of_this_call(0)
        return kvtriage.CacheSpec(
            layers=[
                kvtriage.LayerSpec(
                    layer_index=layer,
                    q_heads=Q_HEADS,
                    kv_heads=KV_HEADS,
                    k=kvtriage.contiguous_view(
                        region, 2 * layer * plane, KV_HEADS, self.rows, HEAD_SIZE, DTYPES[self.dtype]
                    ),
                    v=kvtriage.contiguous_view(
                        region, (2 * layer + 1) * plane, KV_HEADS, self.rows, HEAD_SIZE, DTYPES[self.dtype]
                    ),
                )
                for layer in range(self.layers)
            ],
            num_layers=self.layers,
        )


class Kvpress:
    """SnapKVPress on the layers of a workload, one after the other, as its hooks run."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.press = SnapKVPress(compression_ratio=1.0 - KEPT_RATIO, window_size=WINDOW, kernel_size=KERNEL)
        self.module = SimpleNamespace(
            config=SimpleNamespace(num_attention_heads=Q_HEADS, num_key_value_heads=KV_HEADS),
            head_dim=HEAD_SIZE,
            q_proj=torch.nn.Identity(),
        )
        # Hidden states whose last rows are the queries: with the identity as projection and no rotation
        # the press sees exactly them. Only those rows are read.
        self.hidden = torch.zeros(1, work.rows, Q_HEADS * HEAD_SIZE, dtype=work.dtype)
        ones = torch.ones(1, work.rows, HEAD_SIZE, dtype=work.dtype)
        self.kwargs = {"position_embeddings": (ones, torch.zeros_like(ones))}

    def arguments(self, layer: int) -> tuple[Any, ...]:
        self.hidden[0, -WINDOW:] = self.work.queries[layer].reshape(WINDOW, -1)
        keys, values = self.work.original[layer, :, None]
        return self.module, self.hidden, keys, values, None, self.kwargs

    def run(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        with torch.inference_mode():
            return [self.press.compress(*self.arguments(layer)) for layer in range(self.work.layers)]


@dataclass
class Seconds:
    """Of one form of input, one entry per round."""

    kvpress: list[float]
    kvtriage: list[float]
    service: list[Timing]

    def line(self, name: str) -> str:
        theirs, ours = statistics.median(self.kvpress), statistics.median(self.kvtriage)
        service = statistics.median(timing.total for timing in self.service) / 1e6
        return f"{name:<9} {theirs:>8.3f} s {ours:>8.3f} s {service:>8.3f} s {theirs / ours:>6.2f}x"


def measure(session: kvtriage.Session, dtype: torch.dtype, layers: int, rows: int, rounds: int) -> bool:
    """Times both, prints a line, and says whether the kept sets agree."""
    work = Workload(session, dtype, layers, rows)
    theirs = Kvpress(work)
    seconds = Seconds([], [], [])
    for number in range(rounds + 1):  # the first one warms up
        begin = time.perf_counter()
        compressed = theirs.run()
        middle = time.perf_counter()
        work.restore()
        request = work.request(kvtriage.InPlace())
        start = time.perf_counter()
        outcome = session.compress(request)
        result = outcome.one_result()
        lists = result.kept_sets.lists
        end = time.perf_counter()
        assert outcome.result is not None
        if number:
            seconds.kvpress.append(middle - begin)
            seconds.kvtriage.append(end - start)
            seconds.service.append(outcome.result.timing)
    name = str(dtype).removeprefix("torch.")
    print(seconds.line(name), flush=True)
    same = agree(work, theirs, compressed, lists)
    session.unregister([work.region], [work.cache])
    work.memory.close()
    return same


def agree(
    work: Workload,
    theirs: Kvpress,
    compressed: list[tuple[torch.Tensor, torch.Tensor]],
    lists: list[np.ndarray],
) -> bool:
    """Compares the kept sets, and the bytes that our move left, with kvpress's rows."""
    swapped, widest, moved = 0, 0.0, True
    after = torch.frombuffer(work.memory.buffer, dtype=work.dtype, count=work.original.numel())
    after = after.view(work.original.shape)
    for layer, (keys, _values) in enumerate(compressed):
        ours: KeptRows = lists[layer * KV_HEADS : (layer + 1) * KV_HEADS]
        kept = rows_of_copies(work.original[layer, 0], keys[0])
        for head in range(KV_HEADS):
            wanted = work.original[layer, :, head, torch.from_numpy(ours[head].astype(np.int64))]
            moved &= torch.equal(after[layer, :, head, : len(ours[head])], wanted)
            rows = np.setxor1d(ours[head], kept[head])
            if len(rows):
                score = exact_scores(work, layer, head)[rows]
                swapped += len(rows) // 2
                widest = max(widest, float(np.ptp(score) / score.max()))
    total = sum(map(len, lists))
    print(
        f"          kept rows {total}, of them others {swapped} ({swapped / total:.2%});"
        f" widest relative gap of their scores {widest:.1e}, allowed {NEAR_TIE[work.dtype]:.1e}"
    )
    if not moved:
        print("          rows that were moved in place are not the kept ones", file=sys.stderr)
    return moved and widest <= NEAR_TIE[work.dtype]


def exact_scores(work: Workload, layer: int, head: int) -> np.ndarray:
    """Scores of one KV head in float64, [rows]: mean of the pooled attention that the window pays."""
    group = slice(head * Q_HEADS // KV_HEADS, (head + 1) * Q_HEADS // KV_HEADS)
    queries = work.queries[layer, :, group].double().transpose(0, 1)
    logits = queries @ work.original[layer, 0, head].double().T * HEAD_SIZE**-0.5
    hidden = torch.ones(WINDOW, work.rows, dtype=torch.bool).triu(work.rows - WINDOW + 1)
    weights = logits.masked_fill(hidden, -torch.inf).softmax(-1)[..., :-WINDOW].mean(1)
    pooled = torch.nn.functional.avg_pool1d(weights, KERNEL, stride=1, padding=KERNEL // 2)
    return torch.cat([pooled.mean(0), torch.full((WINDOW,), torch.inf, dtype=torch.float64)]).numpy()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    print(
        f"snapkv, window {WINDOW}, {KEPT_RATIO:.0%} kept: {options.layers} layers, {options.rows} rows,"
        f" {Q_HEADS} / {KV_HEADS} heads of {HEAD_SIZE}; {threads} threads each; median of {options.rounds}"
    )
    print(f"{'':9} {'kvpress':>10} {'kvtriage':>10} {'(service)':>10} {'ratio':>7}")
    with (
        kvtriage.PrivateService([f"--lane.cpu_threads={threads}"]) as service,
        kvtriage.connect(service.endpoint) as session,
    ):
        same = [
            measure(session, dtype, options.layers, options.rows, options.rounds)
            for dtype in (torch.bfloat16, torch.float32)
        ]
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
