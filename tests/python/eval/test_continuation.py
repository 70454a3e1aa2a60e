"""Going on with kept rows, against one pass of the stock model under a mask."""

import pytest
import torch
from kvtriage import Outcome
from kvtriage.eval.cases import Case
from kvtriage.eval.continuation import Continuation
from kvtriage.eval.selection import longest, mean_kept, select
from kvtriage.transformers import SidecarCache
from tiny_model import some_ids

CUT, ALL = 100, 124


def masked_logits(loaded, ids, kept):
    """One pass over all ids in float64: rows after the cut see the kept rows and each other.

    The stock model takes a mask per query head, the same in all layers, so the kept sets are too.
    """
    seen = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    seen = seen.repeat(loaded.geometry.q_heads, 1, 1)
    for head in range(loaded.geometry.q_heads):
        gone = torch.ones(CUT, dtype=torch.bool)
        gone[kept[head // loaded.group]] = False
        seen[head, CUT:, :CUT] &= ~gone
    mask = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, float("-inf"))
    model = loaded.model.double()
    try:
        with torch.inference_mode():
            return model(torch.tensor([ids]), attention_mask=mask[None], use_cache=False).logits[0, CUT:]
    finally:
        loaded.model.float()


def test_a_reading_is_the_stock_model(loaded, reading):
    ids = some_ids(ALL)
    logits = reading.read(ids, CUT)
    with torch.inference_mode():
        stock = loaded.model(torch.tensor([ids]), use_cache=True)
    assert torch.allclose(logits, stock.logits[0, CUT:], atol=1e-4)
    for layer in range(loaded.geometry.layers):
        cached = stock.past_key_values.layers[layer]
        assert torch.allclose(reading.keys[layer, :, :ALL], cached.keys[0], atol=1e-5)
        assert torch.allclose(reading.values[layer, :, :ALL], cached.values[0], atol=1e-5)
    assert loaded.model.config._attn_implementation == "sdpa"  # left as it was found


def test_different_lists_side_by_side_give_what_a_mask_gives(loaded, reading):
    ids = some_ids(ALL)
    reading.read(ids, CUT)
    generator = torch.Generator().manual_seed(2)
    batches = []
    for counts in ((10, 60), (100, 1), (37, 37)):  # lists of a batch, and of heads, differ in length
        heads = [torch.randperm(CUT, generator=generator)[:count].sort().values for count in counts]
        batches.append([heads] * loaded.geometry.layers)
    going_on = Continuation(reading, batches, ALL - CUT)
    logits = going_on.forward(torch.tensor(ids[CUT:]), ALL - CUT)
    for kept, ours in zip(batches, logits):
        reference = masked_logits(loaded, ids, kept[0])
        assert torch.allclose(ours.double(), reference, atol=2e-4), (ours - reference).abs().max()


@pytest.mark.parametrize("policy", ["streaming", "h2o+obc-key", "tova", "snapkv"])
def test_it_is_what_a_cache_compacted_in_place_gives(loaded, session, reading, policy):
    ids = some_ids(ALL)
    reading.read(ids, CUT)
    going_on = Continuation(reading, [select(reading, Case(policy, 0.3).to_policy())], ALL - CUT)
    ours = going_on.forward(torch.tensor(ids[CUT:]), ALL - CUT)[0]
    model = loaded.model
    compacted = SidecarCache(model, session, capacity=ALL, policy=policy)
    with torch.inference_mode(), compacted as cache, cache.attach(model):
        model(torch.tensor([ids[:CUT]]), past_key_values=cache)
        assert cache.compress(kept_ratio=0.3).outcome is Outcome.APPLIED
        assert cache.physical_len == 30
        theirs = model(torch.tensor([ids[CUT:]]), past_key_values=cache).logits[0]
    assert torch.allclose(ours, theirs, atol=2e-4), (ours - theirs).abs().max()


def test_token_by_token_and_rewound_is_the_same(reading):
    ids = some_ids(ALL)
    reading.read(ids, CUT)
    kept = [select(reading, Case(policy, 0.3).to_policy()) for policy in ("snapkv", "adakv+drop")]
    going_on = Continuation(reading, kept, ALL - CUT)
    whole = going_on.forward(torch.tensor(ids[CUT:]), ALL - CUT)
    going_on.rewind(3)
    steps = [going_on.forward(torch.tensor([token]), 1)[:, 0] for token in ids[CUT + 3 :]]
    assert torch.allclose(torch.stack(steps, 1), whole[:, 3:], atol=1e-4)
    with pytest.raises(ValueError, match="room for 24 tokens, 25 are fed"):
        going_on.forward(torch.tensor([1]), 1)
    with pytest.raises(ValueError, match="cannot go back"):
        going_on.rewind(ALL)


def test_selection_keeps_what_the_budget_says(reading):
    reading.read(some_ids(ALL), CUT)
    for policy in ("streaming", "h2o+obc-key", "tova", "knorm"):
        kept = select(reading, Case(policy, 0.2).to_policy())
        assert longest(kept) == 20 and mean_kept(kept) == 20
    adaptive = select(reading, Case("adakv", 0.2, window="8", recent_share="0.1").to_policy())
    assert mean_kept(adaptive) == 20 and longest(adaptive) > 20  # on average over the heads
    everything = select(reading, Case("snapkv", 1.0).to_policy())
    assert all(rows.tolist() == list(range(CUT)) for heads in everything for rows in heads)


def test_texts_that_do_not_fit_are_refused(reading):
    for count, cut in ((161, 100), (100, 100), (100, 0)):
        with pytest.raises(ValueError, match="do not fit"):
            reading.read(some_ids(count), cut)
