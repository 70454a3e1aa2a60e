"""The tokens of compacted requests are the right ones, in the real engine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import kvtriage
import pytest
from engine import Ask, Job, Ran, run
from masked_reference import Compaction, MaskedReference
from records import compactions_of, pool_of

BIN = Path(os.environ.get("KVTRIAGE_BIN", Path(__file__).resolve().parents[3] / "build" / "dev" / "bin"))
TOKENS = 100
# Requests that are sent at once: half of them are compacted.
MIXED = [
    {"kvtriage": {"keep": 0.4, "every": 32}},
    None,
    {"kvtriage": {"keep": 0.2, "every": 32, "policy": "snapkv+obc-key", "window": 16}},
    {"kvtriage": False},
    {"kvtriage_keep": "0.4", "kvtriage_policy": "streaming", "kvtriage_every": 0},
    None,
]


@pytest.fixture(scope="module")
def stock(tiny_model: Path, prompts: list[list[int]], tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """vLLM without the plugin."""
    batch = [Ask(prompt, TOKENS) for prompt in prompts]
    return run(Job(str(tiny_model), [batch]), tmp_path_factory.mktemp("stock"))


# Chunks of 96 tokens: windows of queries lie in two of them.
@pytest.mark.parametrize(("block", "chunk"), [(32, 2048), (64, 96)])
def test_tokens_are_right(
    kvtriaged: str,
    tiny_model: Path,
    prompts: list[list[int]],
    reference: MaskedReference,
    stock: Ran,
    tmp_path: Path,
    block: int,
    chunk: int,
) -> None:
    with kvtriage.PrivateService(program=kvtriaged) as service:
        batches = [
            [Ask(prompt, TOKENS, {"kvtriage": {"keep": 4096}}) for prompt in prompts[:3]],
            [Ask(prompt, TOKENS, args) for prompt, args in zip(prompts, MIXED)],
        ]
        engine = {"block_size": block, "max_num_batched_tokens": chunk}
        refused = ({"keep": 0}, {"keep": 64}, {"keep": 0.5, "policy": "h2o"})
        bad = [Ask(prompts[0], 8, {"kvtriage": args}) for args in refused]
        job = Job(str(tiny_model), batches, {"endpoint": service.endpoint}, engine, refused=bad)
        ran = run(job, tmp_path)
        applied = service.metric("kvtriage_decisions_total", 'outcome="applied"')
    assert applied > 0, "the service's own page shows no decision"

    for reason, named in zip(ran.refusals, ("keep=0", "keep=64", "'h2o'")):
        assert named in reason
    for answer, expected in zip(ran.answers[0], stock.answers[0]):
        assert answer.tokens == expected.tokens, "a budget that covers everything changes nothing"
    for answer, prompt, args, expected in zip(ran.answers[1], prompts, MIXED, stock.answers[0]):
        compactions = compactions_of(tmp_path, answer)
        if args is None or args.get("kvtriage") is False:
            assert not compactions
            assert answer.tokens == expected.tokens
            continue
        assert len(compactions) == (4 if "kvtriage" in args else 1)  # at the end of the prompt, +32, +64, +96
        if "kvtriage" in args:
            kept = compactions[0].tokens
            assert kept is not None and (kept[:, 0] != kept[:, 1]).any(), "all KV heads keep the same"
        assert answer.tokens != expected.tokens, "the compaction makes no difference: this proves nothing"
        right, gap = reference.check(prompt, answer.tokens, compactions)
        assert right == TOKENS, f"token {right} differs; the smallest gap of the best two was {gap}"
    _expect_no_block_is_lost(tmp_path)
    _expect_nothing_is_held(tmp_path, len(MIXED))
    _expect_the_clis_sets(tmp_path, compactions_of(tmp_path, ran.answers[1][0])[0])


def _expect_the_clis_sets(folder: Path, compaction: Compaction) -> None:
    """Of the first request: the CLI decides the same on a dump of the same tensors."""
    command = [BIN / "kvtriage", "compress", "--json", "--policy=snapkv", "--keep=0.4"]
    asked = subprocess.run(
        [*command, f"--dump={folder / 'dump.safetensors'}"], check=True, capture_output=True, timeout=60
    )
    layers = json.loads(asked.stdout)["runs"][0]["layers"]
    assert compaction.tokens is not None
    assert [layer["kept"] for layer in layers] == compaction.tokens.tolist()


def _expect_nothing_is_held(folder: Path, requests: int) -> None:
    """The worker knows the requests of the last batch at most, and no others hold windows of queries."""
    book = json.loads((folder / "book.json").read_text())
    assert book["live"] <= requests and 8 - book["slots"] <= book["live"]


def _expect_no_block_is_lost(folder: Path) -> None:
    for pool in pool_of(folder):
        assert pool["free"] + pool["held"] + pool["quarantined"] == pool["all"] - 1  # block 0 is nobody's


def test_preempted_requests_start_over(
    kvtriaged: str,
    tiny_model: Path,
    prompts: list[list[int]],
    reference: MaskedReference,
    tmp_path: Path,
) -> None:
    """So few blocks that running requests are preempted, compacted ones among them."""
    tokens = 150
    args = [{"kvtriage": {"keep": 0.9, "every": 64, "window": 16}}, None] * 3
    asks = [Ask(prompt, tokens, arg) for prompt, arg in zip(prompts, args)]
    engine = {"num_gpu_blocks_override": 40, "max_model_len": 640}
    with kvtriage.PrivateService(program=kvtriaged) as service:
        ran = run(Job(str(tiny_model), [asks], {"endpoint": service.endpoint}, engine), tmp_path)
    compacted_and_preempted = 0
    for answer, prompt in zip(ran.answers[0], prompts):
        compactions = compactions_of(tmp_path, answer)
        right, gap = reference.check(prompt, answer.tokens, compactions)
        assert right == tokens, f"token {right} differs; the smallest gap of the best two was {gap}"
        lost = [compaction.tokens is None for compaction in compactions]
        compacted_and_preempted += any(lost) and not lost[0]
    assert compacted_and_preempted, "nothing was preempted after a compaction: fewer blocks are needed"
    _expect_no_block_is_lost(tmp_path)
