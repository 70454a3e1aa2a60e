"""Scores, kept sets and quality of one compress case, composed from the rules in ref_np."""
import math

import numpy as np

import ref_np as ref
from golden_file import settle, settle_gap, settle_share

GAP = 1e-4                  # kept sets must be equal when the relative gap at the cut is above this
NO_QUERIES = ('recency', 'random', 'key_norm', 'key_diff', 'lagkv', 'expected')
NEEDS_OUTPUTS = ('key', 'joint', 'drop')


def round_to(kind, x):
    return {'f32': lambda y: y.astype(np.float32), 'f16': lambda y: y.astype(np.float32).astype(np.float16),
            'bf16': ref.to_bf16}[kind](x).astype(float)


def sinks(logits):
    return np.float32(logits['sink_logits']).astype(float) if 'sink_logits' in logits else None


def attention(x, scale, source, logits):
    """Attention of all supplied rows. 'query': from Q; 'given-T': from O rounded to T and LSE rounded to float32.

    `logits`: softcap, alibi_slopes and sink_logits (as float32 has them), each if the case has it.
    """
    rows, n = x['Q'].shape[1], x['K'].shape[1]
    how = {'scale': scale, 'softcap': logits.get('softcap', 0.0)}
    if 'alibi_slopes' in logits:
        how['bias'] = ref.alibi_bias(np.float32(logits['alibi_slopes']), ref.row_limits(rows, n), n)
    at = ref.attend(x['Q'], x['K'], x['V'], sink_logit=sinks(logits), **how)
    if source == 'query':
        return at
    o, lse = round_to(source.split('-')[1], at.O), at.lse.astype(np.float32)
    return ref.attend_given(x['Q'], x['K'], x['V'], o, lse, **how)


def newest(at, rows):
    cut = at.A.shape[1] - rows
    return ref.Attn(at.A[:, cut:], at.Z[:, cut:], at.O[:, cut:], None, at.vis[:, cut:])


def window_rows(p, x):
    n, supplied = x['K'].shape[1], x['Q'].shape[1]
    return min(n, supplied) if p['rows'] == 'all' else min(p['rows'], n, supplied)


def layer_score(p, x, at, pool_end, layer):
    """[Hk, N] after reduce and pool; `at` holds the window's rows (None without queries)."""
    hk, n, _ = x['K'].shape
    kind, how = p['scorer'], p['reduce']
    if kind == 'recency':
        return ref.recency(hk, n)
    if kind == 'random':
        return ref.random_score(hk, n, p['random_key'], layer)
    if kind in ('key_norm', 'key_diff'):
        return settle({'key_norm': ref.key_norm, 'key_diff': ref.key_diff}[kind](x['K']))
    if kind == 'expected':
        return settle(ref.expected_attention(x['Qpre'], x['K'], x['V'], ref.inv_freq(1e4, x['K'].shape[-1]), scale=x['scale'],
                                             next_position=n, sinks=p['sinks'], future=p['future'], cov=p.get('cov', True),
                                             eps=p['eps']))
    if kind == 'lagkv':
        return ref.lagkv(x['K'], x['V'], p['sinks'], p['lag'])
    if kind == 'critical':
        score = ref.reduce_group(ref.column_sums(at.A), hk, 'mean') / at.A.shape[1]
        return settle(ref.pool(score, p['pool'], p['kernel'], pool_end))
    if kind in ('attention', 'vatp'):
        how = 'mean' if how == 'pre' else how
        score = ref.reduce_group(ref.column_sums(at.A), hk, how)
        score = score * np.abs(x['V']).sum(-1) if kind == 'vatp' else score
    elif how == 'pre':
        score = ref.obc_sums(ref.group_average(at, hk), x['V'], kind)
    else:
        score = ref.reduce_group(ref.obc_sums(at, x['V'], kind), hk, how)
    return settle(ref.pool(score, p['pool'], p['kernel'], pool_end))


def recent_rows(p, n, b):
    tail = 0
    if p['scorer'] == 'lagkv' and n >= p['sinks'] + 2 * p['lag']:
        tail = ref.lag_tail(n, p['sinks'], p['lag'])
    return min(n, max(p['recent'], int(p['recent_share'] * b), tail))


def budgets_of(p, n, b, groups, group_size, lists_of_explicit, indexes, model_layers):
    """Per list: (kept rows, protected rows, trimmed); lists are numbered group by group."""
    count = groups * group_size
    wanted = {'explicit': p.get('counts')}.get(p['heads']) or [b] * count
    if p['layers'] == 'explicit':
        wanted = [c for c in p['counts'] for _ in range(group_size)]
    out = []
    for i, kept in enumerate(min(n, w) for w in wanted):
        out.append([kept] + list(ref.protected(n, kept, p['sinks'], recent_rows(p, n, kept), lists_of_explicit(i))))
    if p['layers'] == 'pyramid':
        size = len(out[0][1])
        slots = ref.pyramid_counts(model_layers, b - size, n - size, p['beta'], 1 if size == 0 else 0)
        for i, plan in enumerate(out):
            assert len(plan[1]) == size
            plan[0] = size + slots[indexes[i // group_size]]
    return out


def explicit_of(p, hk):
    """The explicit rows of kept list i (a policy's lists are per head where these are not per sequence)."""
    given = p.get('explicit')
    if given is None:
        return lambda i: ()
    return {'sequence': lambda i: given['lists'][0], 'layer': lambda i: given['lists'][i // hk],
            'head': lambda i: given['lists'][i]}[given['granularity']]


def golden_two_stages(p, score, second, cand, k):
    """Like golden_set, for CriticalKV's selection; the gap is the smaller one of the two cuts."""
    one = ref.two_stage(score, second, cand, k, p['first_stage'], 0.0)[1]
    first = ref.golden_set(score, cand, one, GAP)
    rest = np.setdiff1d(cand, first['exact'])
    then = ref.golden_set(second, rest, k - one, GAP)
    exact = np.union1d(first['exact'], then['exact'])
    return {'exact': exact, 'pool': [], 'gap': min(first['gap'], then['gap']), 'stages': (one, k - one)}


def select(p, scores, b, tol, indexes, model_layers, second=None):
    """Golden sets per list from one [Hk, N] score array per layer: dict(lists, trimmed, gap); a list knows its protected rows."""
    n = scores[0].shape[1]
    if p['granularity'] == 'sequence':
        groups = [np.concatenate(scores).sum(0, keepdims=True)]
    elif p['granularity'] == 'layer':
        groups = [s.sum(0, keepdims=True) for s in scores]
    else:
        groups = scores
    size = len(groups[0])
    plans = budgets_of(p, n, b, len(groups), size, explicit_of(p, size), indexes, model_layers)
    lists, cut_gaps = [], []
    for i, score in enumerate(groups):
        mine = plans[i * size:(i + 1) * size]
        counts = [kept - len(protect) for kept, protect, _ in mine]
        if p['heads'] == 'adaptive':
            protect, t = mine[0][1], counts[0]
            cand = np.setdiff1d(np.arange(n), protect)
            counts = ref.adaptive_counts(score, cand, t, p['alpha'], 1 if len(protect) == 0 else 0)
            ranked = np.sort(score[:, cand].reshape(-1))[::-1]
            cut_gaps.append((ranked[len(score) * t - 1] - ranked[len(score) * t]) / ranked[len(score) * t - 1])
        for h, k in enumerate(counts):
            cand = np.setdiff1d(np.arange(n), mine[h][1])
            golden = ref.golden_set(score[h], cand, k, tol) if second is None else golden_two_stages(p, score[h], second[i][h], cand, k)
            lists.append(dict(golden, score=score[h], k=k, protect=mine[h][1], candidates=cand))
    return {'lists': lists, 'trimmed': max(plan[2] for plan in plans),
            'cut_gaps': cut_gaps, 'gap': min(cut_gaps + [g['gap'] for g in lists])}


def lag_gap(x, p):
    """Least relative distance of neighbours in the order inside LagKV's partitions: rounding must not turn it."""
    n, sinks, lag = x['K'].shape[1], p['sinks'], p['lag']
    if n < sinks + 2 * lag:
        return math.inf
    end, total = sinks + (n - sinks) // lag * lag, 0
    for t in (x['K'], x['V']):
        parts = t[:, sinks:end].reshape(len(t), -1, lag, t.shape[-1])
        low, high = parts[:, 1:].min(2, keepdims=True), parts[:, 1:].max(2, keepdims=True)
        s = ((parts[:, :-1] - low) / (high - low)).std(-1, ddof=1)
        total = total + np.exp(s) / np.exp(s).sum(-1, keepdims=True)
    ranked = np.sort(total, -1)
    return (np.diff(ranked, axis=-1) / ranked[..., 1:]).min()


def tie_is_sharp(g):
    """A tie at the cut is exact, and nothing else is near it."""
    cand = g['candidates']
    if g['k'] == 0 or g['k'] >= len(cand):
        return True
    wide = ref.golden_set(g['score'], cand, g['k'], GAP)
    return np.array_equal(wide['pool'], ref.golden_set(g['score'], cand, g['k'], 0.0)['pool'])


def window_mass(at, kept, hk):
    """Share of the window's attention that each KV head keeps, [Hk]."""
    hq = at.A.shape[0]
    held = [at.A[h][:, kept[h // (hq // hk)]].sum() for h in range(hq)]
    votes = at.vis.any(-1).sum(-1)
    return np.array(held).reshape(hk, -1).sum(1) / votes.reshape(hk, -1).sum(1)


def quality(at, x, kept, protect, sink):
    """Numbers per KV head [Hk, 5] (mean and lowest mass, pooled and highest error, recall) and of the layer [6]."""
    hk, n, _ = x['K'].shape
    hq = at.A.shape[0]
    group = hq // hk
    oracle = ref.reduce_group(ref.obc_sums(at, x['V'], 'drop'), hk, 'sum')
    cand = np.setdiff1d(np.arange(n), protect)
    heads, squares, gap = [], np.zeros(2), math.inf
    for g in range(hk):
        mass, off, norm = [], [], []
        for h in range(g * group, (g + 1) * group):
            a = at.A[h][:, kept[g]]
            m = a.sum(-1)
            stays = np.exp(sink[h] - at.lse[h]) if sink is not None else 0.0    # a learned sink is never evicted
            o = a @ x['V'][g][kept[g]] / np.where(m > 0, m + stays, 1.0)[:, None]
            mass.append(m)
            off.append(np.linalg.norm(o - at.O[h], axis=-1))
            norm.append(np.linalg.norm(at.O[h], axis=-1))
        mass, off, norm = np.concatenate(mass), np.concatenate(off), np.concatenate(norm)
        chosen = np.setdiff1d(kept[g], protect)
        gap = min(gap, ref.golden_set(oracle[g], cand, len(chosen), GAP)['gap'])
        heads.append([mass.mean(), mass.min(), ref.pooled_error(off / norm, norm),
                      (off / np.maximum(norm, 1e-12)).max(), ref.recall(chosen, oracle[g], cand)])
        squares += [(off ** 2).sum(), (norm ** 2).sum()]
    heads = np.array(heads)
    rank = lambda v, q: np.sort(v)[math.ceil(q * len(v)) - 1]
    layer = [heads[:, 0].mean(), rank(heads[:, 0], 0.05), math.sqrt(squares[0] / squares[1]), rank(heads[:, 2], 0.95),
             heads[:, 4].mean()]
    return heads, np.array(layer), gap


def pooled_score(p, x, at, b, layer, place):
    """layer_score with the recent window of each head's own budget; `place` is the layer's in the call."""
    hk, n, _ = x['K'].shape
    if p['layers'] != 'explicit' and p['heads'] != 'explicit':
        return layer_score(p, x, at, n - recent_rows(p, n, b), layer)
    counts = [p['counts'][place]] * hk if p['layers'] == 'explicit' else p['counts'][place * hk:(place + 1) * hk]
    return np.stack([layer_score(p, x, at, n - recent_rows(p, n, min(n, c)), layer)[h] for h, c in enumerate(counts)])


def answer(p, layers, scale, source, b, tol, measure, model_layers, logits):
    """One answer (scores, sets, masses, quality) of a case; `layers` is [(inputs, layer index)]."""
    scores, windows, whole = [], [], []
    for x, layer in layers:
        at = None if p['scorer'] in NO_QUERIES else attention(x, scale, source, logits)
        whole.append(at)
        windows.append(None if at is None else newest(at, window_rows(p, x)))
        scores.append(pooled_score(p, x, windows[-1], b, layer, len(scores)))
    second = None
    if p['scorer'] == 'critical':
        second = [settle((s + p['eps']) * ref.critical_weight(x['V'], x['Wo'], x['Q'].shape[0])) for s, (x, _) in zip(scores, layers)]
    picked = select(p, scores, b, tol, [layer for _, layer in layers], model_layers, second)
    kept = [np.union1d(g['protect'], g['exact']) for g in picked['lists']]
    hk = scores[0].shape[0]
    def lists_of(l):
        return {'head': kept[l * hk:(l + 1) * hk], 'layer': kept[l:l + 1] * hk, 'sequence': kept * hk}[p['granularity']]
    out = {'scores': np.stack(scores), 'picked': picked, 'gap': picked['gap']}
    if second is not None:
        out['second_scores'] = np.stack(second)
    if windows[0] is not None:
        out['window_mass'] = settle_share([window_mass(w, lists_of(l), hk) for l, w in enumerate(windows)])
    if measure:
        out['head_quality'], out['layer_quality'], oracle_gap = quality(
            whole[0], layers[0][0], kept, picked['lists'][0]['protect'], sinks(logits))
        out['gap'] = min(out['gap'], oracle_gap)
    return out


def store(f, sources, a, exact):
    """Puts an answer into golden file `f`; returns its JSON."""
    lists = a['picked']['lists']
    fields = {'sources': sources, 'scores': f.put(a['scores'], 'f64')}
    protects = [g['protect'] for g in lists]
    if all(np.array_equal(protects[0], other) for other in protects):
        fields['protect'] = f.put(protects[0], 'i32')
    else:
        fields['protects'] = f.put_lists(protects)
    fields |= {'trimmed': a['picked']['trimmed'], 'exact': f.put_lists([g['exact'] for g in lists]),
              'rule': 'exact' if exact else 'near', 'gaps': [settle_gap(g['gap']) for g in lists]}
    if not exact:
        fields['pool'] = f.put_lists([g['pool'] for g in lists])
    if 'second_scores' in a:
        fields['second_scores'] = f.put(a['second_scores'], 'f64')
        fields['stages'] = [int(n) for n in np.sum([g['stages'] for g in lists], 0)]
    for name in ('window_mass', 'head_quality', 'layer_quality'):
        if name in a:
            fields[name] = f.put(settle_share(a[name]), 'f64')
    return fields
