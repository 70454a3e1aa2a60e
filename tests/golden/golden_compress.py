"""Scores, kept sets and quality of one compress case, composed from the rules in ref_np."""
import math

import numpy as np

import ref_np as ref
from golden_file import settle, settle_gap, settle_share

GAP = 1e-4                  # kept sets must be equal when the relative gap at the cut is above this
NO_QUERIES = ('recency', 'random')
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
    return min(n, max(p['recent'], int(p['recent_share'] * b)))


def select(p, scores, b, tol):
    """Golden sets per list from one [Hk, N] score array per layer: dict(lists, protect, trimmed, counts, gap)."""
    n = scores[0].shape[1]
    protect, trimmed = ref.protected(n, b, p['sinks'], recent_rows(p, n, b))
    cand, t = np.setdiff1d(np.arange(n), protect), b - len(protect)
    if p['granularity'] == 'sequence':
        groups = [np.concatenate(scores).sum(0, keepdims=True)]
    elif p['granularity'] == 'layer':
        groups = [s.sum(0, keepdims=True) for s in scores]
    else:
        groups = scores
    lists, cut_gaps = [], []
    for score in groups:
        counts = [t] * len(score)
        if p['heads'] == 'adaptive':
            counts = ref.adaptive_counts(score, cand, t, p['alpha'], 1 if len(protect) == 0 else 0)
            ranked = np.sort(score[:, cand].reshape(-1))[::-1]
            cut_gaps.append((ranked[len(score) * t - 1] - ranked[len(score) * t]) / ranked[len(score) * t - 1])
        for h, k in enumerate(counts):
            lists.append(dict(ref.golden_set(score[h], cand, k, tol), score=score[h], k=k))
    return {'lists': lists, 'protect': protect, 'candidates': cand, 'trimmed': trimmed,
            'cut_gaps': cut_gaps, 'gap': min(cut_gaps + [g['gap'] for g in lists])}


def tie_is_sharp(g, cand):
    """A tie at the cut is exact, and nothing else is near it."""
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


def answer(p, layers, scale, source, b, tol, measure, logits):
    """One answer (scores, sets, masses, quality) of a case; `layers` is [(inputs, layer index)]."""
    scores, windows, whole = [], [], []
    for x, layer in layers:
        at = None if p['scorer'] in NO_QUERIES else attention(x, scale, source, logits)
        whole.append(at)
        windows.append(None if at is None else newest(at, window_rows(p, x)))
        n = x['K'].shape[1]
        scores.append(layer_score(p, x, windows[-1], n - recent_rows(p, n, b), layer))
    picked = select(p, scores, b, tol)
    kept = [np.union1d(picked['protect'], g['exact']) for g in picked['lists']]
    hk = scores[0].shape[0]
    def lists_of(l):
        return {'head': kept[l * hk:(l + 1) * hk], 'layer': kept[l:l + 1] * hk, 'sequence': kept * hk}[p['granularity']]
    out = {'scores': np.stack(scores), 'picked': picked, 'gap': picked['gap']}
    if windows[0] is not None:
        out['window_mass'] = settle_share([window_mass(w, lists_of(l), hk) for l, w in enumerate(windows)])
    if measure:
        out['head_quality'], out['layer_quality'], oracle_gap = quality(
            whole[0], layers[0][0], kept, picked['protect'], sinks(logits))
        out['gap'] = min(out['gap'], oracle_gap)
    return out


def store(f, sources, a, exact):
    """Puts an answer into golden file `f`; returns its JSON."""
    lists = a['picked']['lists']
    fields = {'sources': sources, 'scores': f.put(a['scores'], 'f64'), 'protect': f.put(a['picked']['protect'], 'i32'),
              'trimmed': a['picked']['trimmed'], 'exact': f.put_lists([g['exact'] for g in lists]),
              'rule': 'exact' if exact else 'near', 'gaps': [settle_gap(g['gap']) for g in lists]}
    if not exact:
        fields['pool'] = f.put_lists([g['pool'] for g in lists])
    for name in ('window_mass', 'head_quality', 'layer_quality'):
        if name in a:
            fields[name] = f.put(settle_share(a[name]), 'f64')
    return fields
