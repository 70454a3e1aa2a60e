"""Golden decode cases through observe and rewind: every eviction keeps the reference's rows."""

from __future__ import annotations

from typing import Any

import kvtriage
import numpy as np
import pytest
from golden_case import SCORERS, Golden, golden_names, ref

CAPACITY = 256


class Decoder:
    """One sequence that grows in a contiguous cache of one layer; its queries follow behind."""

    def __init__(self, session: kvtriage.Session, golden: Golden) -> None:
        self.session, self.golden, self.token = session, golden, 0
        s = golden.head["shape"]
        self.heads, self.q_heads, self.size = s["Hk"], s["Hq"], s["d"]
        self.tokens = ref.make_inputs(
            golden.head["case_number"], s["Hq"], s["Hk"], s["tokens"], s["tokens"], s["d"], s["d"]
        )
        plane = self.heads * CAPACITY * self.size * 4
        self.memory = kvtriage.HostMemory(2 * plane + CAPACITY * self.q_heads * self.size * 4)
        shape = (self.heads, CAPACITY, self.size)
        self.cells = {name: self.memory.array(shape, np.float32, n * plane) for n, name in enumerate("KV")}
        self.queries = self.memory.array((CAPACITY, self.q_heads, self.size), np.float32, 2 * plane)
        here = kvtriage.Region.of_this_call(0)
        k, v = (
            kvtriage.contiguous_view(here, at, self.heads, CAPACITY, self.size, kvtriage.DType.F32)
            for at in (0, plane)
        )
        layer = kvtriage.LayerSpec(q_heads=self.q_heads, kv_heads=self.heads, k=k, v=v)
        lent = session.register(
            kvtriage.Registration([self.memory.lend()], [kvtriage.CacheSpec([layer], num_layers=1)])
        )
        self.cache, self.region, self.queries_at = lent.caches[0], lent.regions[0], 2 * plane
        self.sequence = kvtriage.Sequence(sequence_id=1, table=[0], sharing=kvtriage.Sharing.ALL_PRIVATE)
        self.policy: kvtriage.Policy | None = self.whole_policy()
        self.append(golden.head["unseen"])

    def whole_policy(self) -> kvtriage.Policy:
        head = self.golden.head
        parts = kvtriage.PolicyParts(
            scorer=kvtriage.Scorer(SCORERS[head["scorer"]]),
            window=kvtriage.Window(all=True, decay=head["decay"]),
            reduce=kvtriage.Reduce.SUM,
            pool=kvtriage.Pool(),
            protect=kvtriage.Protect(head["sinks"], head["recent"]),
            budget=kvtriage.Budget(kept_tokens=head["budget"]),
            granularity=kvtriage.Granularity.PER_HEAD,
        )
        return kvtriage.Policy(parts=parts)

    def append(self, rows: int) -> None:
        at = slice(self.sequence.physical_len, self.sequence.physical_len + rows)
        new = slice(self.token, self.token + rows)
        for name, cells in self.cells.items():
            cells[:, at] = self.tokens[name][:, new]
        self.queries[:rows] = self.tokens["Q"][:, new].transpose(1, 0, 2)
        self.token += rows
        self.sequence.physical_len += rows
        self.sequence.logical_len += rows

    def step(self, step: dict[str, Any]) -> None:
        self.append(step["rows"])
        self.sequence.rows_count = step["rows"]
        q = kvtriage.dense_tensor(
            self.region, self.queries_at, kvtriage.DType.F32, 1, step["rows"], self.q_heads, self.size
        )
        outcome = self.session.observe(
            kvtriage.ObserveRequest(
                cache=self.cache,
                policy=self.policy,
                steps=[
                    kvtriage.ObserveStep(
                        self.sequence, draft_rows=step["drafts"], trigger=self.golden.head["trigger"]
                    )
                ],
                inputs=kvtriage.ScoreInputs(
                    kvtriage.QueryWindow(q, kvtriage.QueryStage.AFTER_ROPE),
                    softmax_scale=self.golden.head["scale"],
                ),
                act=kvtriage.InPlace(),
            )
        )
        assert outcome.outcome is kvtriage.Outcome.APPLIED, outcome.error
        assert outcome.result is not None
        answer = outcome.result.steps[0]
        assert answer.started == (self.policy is not None)
        self.policy = None  # the first call has named it
        self.follow(step, answer, outcome.fates[0])

    def follow(
        self, step: dict[str, Any], answer: kvtriage.ObserveStepResult, fate: kvtriage.SequenceFate
    ) -> None:
        assert (answer.evicted is not None) == (step["kept"] is not None)
        if answer.evicted is not None:
            kept = [set(rows.tolist()) for rows in answer.evicted.kept_sets.lists]
            assert kept == self.golden.lists(step["kept"])
        assert answer.draft_rows == step["drafts"]
        self.sequence.physical_len = fate.kept
        self.sequence.kv_revision = fate.kv_revision
        if step["rewind"]:
            rewound = self.session.rewind(kvtriage.RewindRequest(1, rows=step["rewind"]))
            self.sequence.physical_len -= step["rewind"]
            self.sequence.logical_len -= step["rewind"]
            assert rewound.physical_len == self.sequence.physical_len
            assert rewound.draft_rows == step["drafts"] - step["rewind"]


@pytest.mark.parametrize("name", golden_names("decode"))
def test_every_eviction_keeps_the_references_rows(session: kvtriage.Session, name: str) -> None:
    golden = Golden(name)
    decoder = Decoder(session, golden)
    for step in golden.head["steps"]:
        decoder.step(step)


def test_what_cannot_be_taken_back_is_refused_by_name(session: kvtriage.Session) -> None:
    decoder = Decoder(session, Golden("decode-value"))
    decoder.step({"rows": 20, "drafts": 3, "kept": None, "rewind": 1})
    for sequence, rows, reason in ((1, 3, "rewind_too_far"), (9, 1, "sequence_unknown")):
        with pytest.raises(kvtriage.KvtriageError) as refused:
            session.rewind(kvtriage.RewindRequest(sequence, rows=rows))
        assert refused.value.reason == reason
