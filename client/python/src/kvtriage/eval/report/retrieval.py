"""Sections about finding answers in the prompt."""

from __future__ import annotations

from kvtriage.eval.cases import Case, parse_label, table_order
from kvtriage.eval.measures.retrieval import FULL, SETTINGS
from kvtriage.eval.report.divergence import budgets_of
from kvtriage.eval.report.section import Comparison, Section, verdict
from kvtriage.eval.results import Results
from kvtriage.eval.store import Store
from kvtriage.eval.table import markdown, plain, signed

WORDS = {"aware": "the question is in the window", "agnostic": "the question comes after the cut"}


def sections(store: Store, seed: int) -> list[Section]:
    return [_setting(store, seed, setting) for setting in SETTINGS] + [_tasks(store, seed)]


def _setting(store: Store, seed: int, setting: str) -> Section:
    results = Results(store, "retrieval", seed, setting=setting)
    cases = sorted((parse_label(label) for label in results.cases if label != FULL), key=table_order)
    budgets = budgets_of(cases)
    names = list(dict.fromkeys((c.policy, c.window, c.recent_share, c.pool) for c in cases))
    scores, matches, against = [], [], []
    scored: list[Comparison] = []
    for policy, *parts in names:
        labels = [Case(policy, budget, *parts).label for budget in budgets]
        name = " ".join(x for x in (policy, Case(policy, 1.0, *parts).parts) if x)
        scores.append([name, *(plain(results.mean(label, "log_prob"), 2) for label in labels)])
        matches.append([name, *(plain(results.mean(label, "match"), 2) for label in labels)])
        host, _, scorer = policy.partition("+")
        if scorer:
            hosts = [Case(host, budget, *parts).label for budget in budgets]
            pairs = [results.difference(h, ours, "log_prob") for ours, h in zip(labels, hosts)]
            scored += [Comparison(f"{name} {b:.0%}", each) for b, each in zip(budgets, pairs)]
            turned = [results.difference(ours, h, "log_prob") for ours, h in zip(labels, hosts)]
            against.append([f"{name} - {host}", *(signed(x, 2) for x in turned)])
    header = ["policy", *(f"{budget:.0%} kept" for budget in budgets)]
    full = [plain(results.mean(FULL, field), 2) for field in ("log_prob", "match")]
    body = (
        f"Log-probability (nats per token) of the right reply; full cache {full[0]}.\n\n"
        + markdown(header, scores)
        + f"\n\nShare of the answers named in a greedy reply; full cache {full[1]}.\n\n"
        + markdown(header, matches)
    )
    if against:
        body += "\n\nPaired difference of the log-probability; above zero the scorer is better.\n\n"
        body += markdown(header, against)
    claim = f"Retrieval, {WORDS[setting]}: another scorer gives the right reply a higher log-probability"
    findings = (verdict(claim, scored),) if scored else ()
    return Section(f"Retrieval, {WORDS[setting]} ({results.samples} prompts)", body, findings)


def _tasks(store: Store, seed: int) -> Section:
    """What the model can do at all, and what is left of it, task by task."""
    tasks = list(dict.fromkeys(record.key["task"] for record in store.select(measure="retrieval")))
    rows = []
    labels: list[str] = []
    for task in tasks:
        for setting in SETTINGS:
            results = Results(store, "retrieval", seed, task=task, setting=setting)
            cases = [parse_label(label) for label in results.cases if label != FULL]
            budgets = budgets_of(cases)
            labels = [FULL, *(Case("snapkv", budget).label for budget in budgets)]
            means = (
                (results.mean(label, "log_prob"), results.mean(label, "match")) for label in labels
            )
            cells = [f"{p.mean:.2f} / {m.mean:.2f}" if p and m else "-" for p, m in means]
            rows.append([f"{task}, {setting} ({results.samples})", *cells])
    body = "Log-probability / match with the full cache and under snapkv.\n\n"
    return Section("Retrieval by task", body + markdown(["task", *labels], rows))
