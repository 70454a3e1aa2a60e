"""Sections about the divergence of the next tokens' predictions."""

from __future__ import annotations

from collections.abc import Sequence

from kvtriage.eval.cases import SCORERS, Case, parse_label, table_order
from kvtriage.eval.report.section import Comparison, Section, verdict
from kvtriage.eval.results import Results
from kvtriage.eval.statistics import Interval
from kvtriage.eval.table import markdown, plain, signed


def sections(results: Results) -> list[Section]:
    cases = sorted(map(parse_label, results.cases), key=table_order)
    named = [case for case in cases if not case.parts]
    swept = [case for case in cases if case.parts]
    parts = [_policies(results, named), _scorers(results, named), _key_against_value(results, named)]
    if swept:
        parts.append(_sweep(results, swept))
    return parts


def budgets_of(cases: Sequence[Case]) -> list[float]:
    return sorted({case.kept_ratio for case in cases})


def _hosts(cases: Sequence[Case]) -> list[str]:
    """Policies that were run with another scorer too."""
    return list(dict.fromkeys(case.host for case in cases if case.scorer))


def _policies(results: Results, cases: Sequence[Case]) -> Section:
    budgets = budgets_of(cases)
    rows = []
    for policy in dict.fromkeys(case.policy for case in cases):
        labels = [Case(policy, budget).label for budget in budgets]
        rows.append([policy, *(plain(results.mean(label, "kl")) for label in labels)])
    errors = []
    for policy in dict.fromkeys(case.policy for case in cases if not case.scorer):
        cells = []
        for budget in budgets:
            label = Case(policy, budget).label
            pair = (results.mean(label, "window_error"), results.mean(label, "later_error"))
            cells.append(" / ".join(plain(x and Interval(x.mean, x.mean, x.mean, 1)) for x in pair))
        errors.append([policy, *cells])
    header = ["policy", *(f"{budget:.0%} kept" for budget in budgets)]
    body = (
        "Mean KL divergence (nats) from the full cache.\n\n"
        + markdown(header, rows)
        + "\n\nPooled relative error of the attention outputs, mean over layers: on the last rows before "
        "the cut / on the rows after it.\n\n" + markdown(header, errors)
    )
    return Section(f"Divergence by policy ({results.samples} texts)", body)


def _scorers(results: Results, cases: Sequence[Case]) -> Section:
    budgets = budgets_of(cases)
    rows, findings = [], []
    for scorer in SCORERS[1:]:
        every: list[Comparison] = []
        for host in _hosts(cases):
            differences = _against_host(results, host, scorer, budgets)
            every += _named(host, budgets, differences)
            if any(differences):
                rows.append([f"{host}+{scorer} - {host}", *(signed(each, counted=True) for each in differences)])
        findings.append(verdict(f"`X+{scorer}` is nearer to the full cache than `X`", every))
    body = (
        "Paired difference of the KL divergence; below zero the other scorer is better. Bold: the interval "
        "does not contain zero. Behind it: on how many of the texts the difference is below zero.\n\n"
        + markdown(["difference", *(f"{budget:.0%} kept" for budget in budgets)], rows)
    )
    return Section("Another scorer in the same host", body, tuple(findings))


def _against_host(
    results: Results, host: str, scorer: str, budgets: Sequence[float], parts: Case | None = None
) -> list[Interval | None]:
    given = parts or Case(host, 1.0)
    pairs = (
        (
            Case(f"{host}+{scorer}", budget, given.window, given.recent_share, given.pool).label,
            Case(host, budget, given.window, given.recent_share, given.pool).label,
        )
        for budget in budgets
    )
    return [results.difference(ours, theirs, "kl") for ours, theirs in pairs]


def _named(
    host: str, budgets: Sequence[float], differences: Sequence[Interval | None]
) -> list[Comparison]:
    return [Comparison(f"{host} {budget:.0%}", each) for budget, each in zip(budgets, differences)]


def _key_against_value(results: Results, cases: Sequence[Case]) -> Section:
    budgets = budgets_of(cases)
    rows, findings = [], []
    for scorer in ("obc-key", "obc-joint"):
        every: list[Comparison] = []
        for host in _hosts(cases):
            labels = ((Case(f"{host}+{s}", b).label for s in (scorer, "obc-value")) for b in budgets)
            differences = [results.difference(ours, theirs, "kl") for ours, theirs in labels]
            every += _named(host, budgets, differences)
            if any(differences):
                rows.append([f"{host}: {scorer} - obc-value", *(signed(each, counted=True) for each in differences)])
        findings.append(verdict(f"`{scorer}` is nearer to the full cache than `obc-value`", every))
    header = ["difference", *(f"{budget:.0%} kept" for budget in budgets)]
    return Section("Key-aware against value-only (KL)", markdown(header, rows), tuple(findings))


def _sweep(results: Results, cases: Sequence[Case]) -> Section:
    budgets = budgets_of(cases)
    scorers = [s for s in SCORERS[1:] if any(case.scorer == s for case in cases)]
    kinds = list(
        dict.fromkeys(Case(c.host, 1.0, c.window, c.recent_share, c.pool) for c in cases if not c.scorer)
    )
    rows = []
    differences: dict[str, list[Comparison]] = {scorer: [] for scorer in scorers}
    for kind in kinds:
        labels = [Case(kind.policy, b, kind.window, kind.recent_share, kind.pool).label for b in budgets]
        cells = [plain(results.mean(label, "kl")) for label in labels]
        for scorer in scorers:
            against = _against_host(results, kind.policy, scorer, budgets, kind)
            differences[scorer] += _named(kind.parts, budgets, against)
            cells += [signed(difference) for difference in against]
        rows.append([f"{kind.policy} {kind.parts}", *cells])
    header = ["host and parts", *(f"attention, {b:.0%}" for b in budgets)]
    header += [f"{scorer} - attention, {b:.0%}" for scorer in scorers for b in budgets]
    findings = [
        verdict(f"Over all windows, recent shares and pools swept, `{s}` beats attention", differences[s])
        for s in scorers
    ]
    findings += _host_effects(results, kinds, scorers, budgets)
    findings += _best(results, cases, budgets)
    body = (
        "KL divergence with attention as the scorer, and what another scorer adds to it (paired). `w`: rows "
        "that vote; `recent`: share of the budget that the newest rows get; `pool` as named.\n\n"
        + markdown(header, rows)
    )
    return Section("Window, recent share and pooling", body, tuple(findings))


def _best(results: Results, cases: Sequence[Case], budgets: Sequence[float]) -> list[str]:
    """The best case of the sweep beside its host's defaults. Best of many: chosen after the fact."""
    lines = []
    for budget in budgets:
        means = {
            case: mean.mean
            for case in cases
            if case.kept_ratio == budget and (mean := results.mean(case.label, "kl")) is not None
        }
        best = min(means, key=lambda case: means[case])
        default = Case(best.host, budget).label
        against = results.difference(best.label, default, "kl")
        if against is not None:
            lines.append(
                f"At {budget:.0%} kept the lowest KL of the {len(means)} swept is {means[best]:.3f}, by "
                f"`{best.label}`: {signed(against)} to `{best.host}` as named (picked after the fact, so the "
                "interval flatters it)."
            )
    return lines


def _host_effects(
    results: Results, kinds: Sequence[Case], scorers: Sequence[str], budgets: Sequence[float]
) -> list[str]:
    """Whether the host or the scorer matters more: the spread of either's mean KL, other things equal."""
    lines = []
    for budget in budgets:
        of_hosts, of_scorers = [], []
        for kind in kinds:
            policies = [kind.policy, *(f"{kind.policy}+{scorer}" for scorer in scorers)]
            cases = [Case(p, budget, kind.window, kind.recent_share, kind.pool) for p in policies]
            means = [mean.mean for case in cases if (mean := results.mean(case.label, "kl")) is not None]
            if means:
                of_hosts.append(means[0])
                of_scorers.append(max(means) - min(means))
        if len(of_hosts) > 1:
            between, within = max(of_hosts) - min(of_hosts), sum(of_scorers) / len(of_scorers)
            lines.append(
                f"At {budget:.0%} kept, window, recent share and pool move the mean KL of plain attention by "
                f"{between:.3f} (from {min(of_hosts):.3f} to {max(of_hosts):.3f}); the scorer, with those "
                f"held fixed, moves it by {within:.3f} on average."
            )
    return lines
