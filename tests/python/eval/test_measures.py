"""Each measure against hand numbers, or brute force in float64."""

import math

import numpy as np
import pytest
import torch
from kvtriage.eval.cases import Case
from kvtriage.eval.continuation import Continuation
from kvtriage.eval.measures.blend import Blend
from kvtriage.eval.measures.divergence import Divergence, mean_divergence
from kvtriage.eval.measures.fidelity import AttentionRows
from kvtriage.eval.measures.perplexity import FULL, Perplexity, evicting_losses, mean_loss, token_losses
from kvtriage.eval.measures.recall import Recall, oracle_rows, overlap
from kvtriage.eval.measures.retrieval import Retrieval, reply_log_probs
from kvtriage.eval.selection import select
from kvtriage.eval.texts import Passage
from tiny_model import some_ids

CUT, ALL = 100, 124


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_divergence_by_hand():
    full = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    other = torch.tensor([[0.25, 0.75], [0.25, 0.75]]).log()
    by_hand = (0.5 * math.log(2) + 0.5 * math.log(2 / 3) + 0.0) / 2
    assert mean_divergence(full, other + 3.0) == pytest.approx(by_hand, rel=1e-6)  # logits: any constant


def test_divergence_in_float64():
    source = np.random.default_rng(23)
    ours, theirs = source.normal(0, 3, (2, 50, 400))
    p, q = softmax(ours), softmax(theirs)
    brute = (p * np.log(p / q)).sum(-1).mean()
    full = torch.log_softmax(torch.tensor(ours, dtype=torch.float32), -1)
    assert mean_divergence(full, torch.tensor(theirs, dtype=torch.float32)) == pytest.approx(brute, rel=1e-5)


def test_loss_by_hand():
    logits = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0], [0.0, 0.0]])
    losses = token_losses(logits, [0, 1, 1])
    assert losses.tolist() == pytest.approx([math.log(2), math.log(4), math.log(2)])
    assert mean_loss(losses, 1) == pytest.approx((math.log(4) + math.log(2)) / 2)


def test_overlap_by_hand():
    chosen = [[torch.tensor([1, 2, 3]), torch.tensor([0, 5, 9])]]
    assert overlap(chosen, [torch.tensor([[3, 2, 7], [1, 2, 3]])]) == 1.0  # two and none


def layer_arrays(reading, layer, rows):
    arrays = reading.queries[layer], reading.keys[layer], reading.values[layer]
    return [array[:, :rows].double().numpy() for array in arrays]


def test_the_oracle_is_deletion_by_brute_force(loaded, reading):
    reading.read(some_ids(ALL), CUT)
    ours = oracle_rows(reading, 10)
    for layer in range(loaded.geometry.layers):
        q, k, v = layer_arrays(reading, layer, CUT + 1)
        for head in range(loaded.geometry.kv_heads):
            change = np.zeros(CUT)
            for h in range(head * loaded.group, (head + 1) * loaded.group):
                z = k[head] @ q[h, CUT] * reading.scale
                output = softmax(z) @ v[head]
                for p in range(CUT):
                    left = np.arange(CUT + 1) != p
                    change[p] += ((softmax(z[left]) @ v[head][left] - output) ** 2).sum()
            best = np.argsort(-change)[:10]
            assert set(ours[layer][head].tolist()) == set(best.tolist())


def test_fidelity_by_brute_force(loaded, reading):
    reading.read(some_ids(ALL), CUT)
    kept = select(reading, Case("adakv+obc-key", 0.2, window="16", recent_share="0.25").to_policy())
    for first, count in ((CUT - 12, 12), (CUT, 9)):
        ours = AttentionRows(reading, first, count).outcome(kept)
        masses, errors = [], []
        for layer in range(loaded.geometry.layers):
            q, k, v = layer_arrays(reading, layer, ALL)
            mass, off, norm = [], 0.0, 0.0
            for h in range(loaded.geometry.q_heads):
                head = h // loaded.group
                for row in range(first, first + count):
                    seen = np.arange(min(row + 1, CUT))
                    a = softmax(k[head][seen] @ q[h, row] * reading.scale)
                    stays = np.isin(seen, kept[layer][head].numpy())
                    mass.append(a[stays].sum())
                    output = a @ v[head][seen]
                    left = (a[stays] / a[stays].sum()) @ v[head][seen][stays] if stays.any() else 0 * output
                    off, norm = off + ((left - output) ** 2).sum(), norm + (output**2).sum()
            masses.append(np.mean(mass))
            errors.append(math.sqrt(off / norm))
        assert ours.mass == pytest.approx(np.mean(masses), abs=1e-5)
        assert ours.error == pytest.approx(np.mean(errors), abs=1e-5)


def test_divergence_of_everything_kept_is_zero_and_falls_with_the_budget(loaded, reading):
    passage = Passage("text", tuple(some_ids(ALL)))
    cases = [Case("snapkv", budget, window="16", recent_share="0.2") for budget in (0.1, 0.4, 1.0)]
    measure = Divergence(reading, [passage], CUT, cases)
    sample = measure.samples()[0]
    values = dict(measure.measure(sample, measure.cases(sample)))
    kl = [values[case.label]["kl"] for case in cases]
    assert kl[0] > kl[1] > kl[2] and kl[2] == pytest.approx(0.0, abs=1e-6)
    assert [values[case.label]["kept"] for case in cases] == [10, 40, 100]
    assert values[cases[2].label]["later_error"] == pytest.approx(0.0, abs=1e-5)


def test_recall_of_the_oracles_own_score_is_what_it_should_be(reading):
    """Deletion with a window of one row asks the row before the oracle's: far better than chance."""
    measure = Recall(reading, [Passage("text", tuple(some_ids(ALL)))], CUT, [1, 16])
    sample = measure.samples()[0]
    values = dict(measure.measure(sample, ["drop w=1", "attention w=16"]))
    assert set(values) == {"drop w=1", "attention w=16"}
    assert all(0.0 <= value["recall"] <= 1.0 for value in values.values())


def test_losses_are_the_stock_models_until_the_budget_is_passed(loaded, session):
    ids = some_ids(97)
    losses = evicting_losses(loaded.model, session, ids, "snapkv", budget=80, chunk=8)
    with torch.inference_mode():
        logits = loaded.model(torch.tensor([ids])).logits[0, :-1]
    stock = -torch.log_softmax(logits.double(), -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert torch.allclose(losses[:88].double(), stock[:88], atol=1e-4)
    assert not torch.allclose(losses[88:].double(), stock[88:], atol=1e-2)
    measure = Perplexity(loaded, session, [Passage("text", tuple(ids))], ["snapkv"], [80], chunk=8)
    values = dict(measure.measure(measure.samples()[0], [FULL, "snapkv kept=80 tokens"]))
    assert values[FULL]["loss"] == pytest.approx(float(stock[88:].mean()), rel=1e-5)
    assert values["snapkv kept=80 tokens"]["loss"] == pytest.approx(float(losses[88:].mean()), rel=1e-5)


def test_perplexity_evicts_while_it_reads(loaded, session):
    passage = Passage("text", tuple(some_ids(120)))
    policies = ["streaming", "h2o", "h2o+obc-key", "h2o+drop"]
    measure = Perplexity(loaded, session, [passage], policies, [24], chunk=8)
    sample = measure.samples()[0]
    values = dict(measure.measure(sample, measure.cases(sample)))
    losses = [value["loss"] for value in values.values()]
    assert len(losses) == 5 and len(set(losses)) == 5 and all(math.isfinite(loss) for loss in losses)


def test_blending_everything_is_a_full_prefill_and_nothing_is_plain_reuse(loaded, session):
    passage = Passage("text", tuple(some_ids(140)))
    for ratio in (0.0, 1.0):
        measure = Blend(loaded, session, [passage], [4], tokens=120, chunks=3, ratio=ratio)
        text = next(sample for sample in measure.samples() if sample.tags["kind"] == "text")
        values = dict(measure.measure(text, measure.cases(text)))
        assert values["full prefill"]["kl"] == pytest.approx(0.0, abs=1e-6)
        assert values["full prefill"]["output_error"] == 0.0
        same = values["plain reuse" if ratio == 0.0 else "full prefill"]
        for field in ("kl", "log_prob", "output_error"):
            assert values[f"HKVD {ratio:.0%}"][field] == pytest.approx(same[field], abs=1e-3)
        assert values["plain reuse"]["kl"] > 0.01


def test_a_leaking_mask_shows(loaded, session):
    passage = Passage("text", tuple(some_ids(140)))
    measure = Blend(loaded, session, [passage], [4], tokens=120, chunks=3, ratio=0.5)
    sample = measure.samples()[0]
    values = dict(measure.measure(sample, measure.cases(sample)))
    assert values["HKVD 50%"]["kl"] < values["plain reuse"]["kl"]
    assert values["HKVD 50%, leaking mask"]["kl"] > values["HKVD 50%"]["kl"]


def test_a_blended_question_is_answered(loaded, session):
    measure = Blend(loaded, session, [], [4], tokens=400, chunks=3, ratio=0.2)
    sample = measure.samples()[0]
    values = dict(measure.measure(sample, measure.cases(sample)))
    assert set(values) == set(measure.cases(sample))
    assert all(value["log_prob"] < 0 and 0 <= value["match"] <= 1 for value in values.values())


def test_reply_log_probs_are_the_stock_models(loaded, reading):
    ids = some_ids(ALL)
    reading.read(ids, CUT)
    going_on = Continuation(reading, [select(reading, Case("h2o", 1.0).to_policy())], ALL - CUT)
    first = going_on.forward(torch.tensor(ids[CUT : CUT + 6]), 1)
    ours = reply_log_probs(going_on, first, ids[CUT + 6 :])[0]
    with torch.inference_mode():
        logits = loaded.model(torch.tensor([ids])).logits[0, CUT + 5 : -1]
    stock = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[CUT + 6 :])[:, None]).mean()
    assert ours == pytest.approx(float(stock), abs=1e-4)
    assert going_on.fed == 6  # as it was found


def test_the_question_is_read_or_fed(loaded, session):
    from kvtriage.eval.reading import Reading

    reading = Reading(loaded, session, 900)
    measure = Retrieval(reading, ["needle-single", "common-words"], [5], 500, [Case("h2o", 0.5)])
    aware, agnostic, *_ = measure.samples()
    assert (aware.tags["setting"], agnostic.tags["setting"]) == ("aware", "agnostic")
    cuts = []
    for sample in (aware, agnostic):
        values = dict(measure.measure(sample, measure.cases(sample)))
        assert set(values) == {"full cache", "h2o kept=0.5"}
        assert all(value["log_prob"] < 0 and 0 <= value["match"] <= 1 for value in values.values())
        cuts.append((reading.cut, reading.length))
    assert cuts[0][0] > cuts[1][0] and cuts[0][1] == cuts[1][1]  # the same tokens, cut elsewhere
    reading.close()
