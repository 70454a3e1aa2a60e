#!/usr/bin/env python3
"""Writes the right answers for the two real-model dumps: kept sets, errors and HKVD rows. Needs NumPy only.

    python3 make_dump_golden.py DATA_DIR OUT_DIR        DATA_DIR holds cache.safetensors and blend.safetensors
"""
import json
import os
import sys

import numpy as np

import ref_np as ref
from golden_cases import MORE_NAMES, NAMES
from golden_compress import NO_QUERIES, layer_score, newest, recent_rows, select, window_rows
from golden_file import GoldenFile, settle, settle_share

NEEDS_MORE = ('criticalkv', 'expected-attention')       # the dump has no output projection and no query moments
NEAR = 1e-5                                             # rows this close to the cut may go either way
KEEPS = (.1, .2, .3, .4)
DTYPES = {'F16': '<f2', 'F32': '<f4', 'I32': '<i4'}


def read_safetensors(path):
    """(tensors as float64 or int arrays, metadata)."""
    with open(path, 'rb') as f:
        raw = f.read()
    size = int.from_bytes(raw[:8], 'little')
    head = json.loads(raw[8:8 + size])
    meta, out = head.pop('__metadata__'), {}
    for name, t in head.items():
        a, b = t['data_offsets']
        x = np.frombuffer(raw[8 + size + a:8 + size + b], DTYPES[t['dtype']]).reshape(t['shape'])
        out[name] = x if t['dtype'] == 'I32' else x.astype(float)
    return out, meta


def policy_on_dump(name):
    """h2o and vatp vote with the queries that the dump has: its last 64 rows."""
    p = ref.expand(name)
    return dict(p, rows=64) if p['rows'] == 'all' else p


def dumped_layers(t, meta, scale):
    """Per dumped layer: inputs, and attention by source."""
    for l in json.loads(meta['dumped_layers']):
        x = {'Q': t['layers.%d.q' % l], 'K': t['layers.%d.k' % l], 'V': t['layers.%d.v' % l]}
        future = t['layers.%d.future_q' % l]
        given = ref.attend_given(x['Q'], x['K'], x['V'], t['layers.%d.o' % l], t['layers.%d.lse' % l], scale=scale)
        yield {'index': l, 'x': x, 'sums': t['layers.%d.colsum_all' % l], 'given': given,
               'query': ref.attend(x['Q'], x['K'], x['V'], scale=scale),
               'future': ref.attend(future, x['K'], x['V'], scale=scale,
                                    limits=np.full(future.shape[1], x['K'].shape[1]))}


def score_of(p, layer, source, pool_end, memo):
    key = (p['scorer'], p['rows'], p['pool'], pool_end, source, id(layer))
    if key not in memo:
        x = layer['x']
        if source == 'sums':
            score = ref.reduce_group(layer['sums'], x['K'].shape[0], 'sum')
            memo[key] = settle(score * np.abs(x['V']).sum(-1) if p['scorer'] == 'vatp' else score)
        else:
            at = None if source == 'none' else newest(layer[source], window_rows(p, x))
            memo[key] = layer_score(p, x, at, pool_end, 0)
    return memo[key]


def pooled(at, x, kept):
    """Pooled output error over all heads and rows of `at`."""
    group = at.A.shape[0] // x['K'].shape[0]
    squares = np.zeros(2)
    for h in range(at.A.shape[0]):
        k = kept[h // group]
        a = at.A[h][:, k]
        o = a @ x['V'][h // group][k] / a.sum(-1)[:, None]
        squares += [((o - at.O[h]) ** 2).sum(), (at.O[h] ** 2).sum()]
    return np.sqrt(squares[0] / squares[1])


def cache_answer(f, name, keep, source, layers, model_layers, memo):
    p = policy_on_dump(name)
    indexes = [layer['index'] for layer in layers]
    n, hk = layers[0]['x']['K'].shape[1], layers[0]['x']['K'].shape[0]
    b = ref.budget(n, ratio=keep)
    recent = recent_rows(p, n, b)
    picked = select(p, [score_of(p, layer, source, n - recent, memo) for layer in layers], b, NEAR, indexes, model_layers)
    protect = picked['lists'][0]['protect']
    lists = [np.union1d(protect, g['exact']) for g in picked['lists']]
    per_layer = len(lists) // len(layers)
    kept = [[lists[l * per_layer + (h if per_layer > 1 else 0)] for h in range(hk)] for l in range(len(layers))]
    errors = [[pooled(layer[rows], layer['x'], kept[l]) for l, layer in enumerate(layers)] for rows in ('query', 'future')]
    return {'policy': name, 'keep': keep, 'source': source, 'protect': f.put(protect, 'i32'),
            'exact': f.put_lists([g['exact'] for g in picked['lists']]),
            'pool': f.put_lists([g['pool'] for g in picked['lists']]),
            # layers where a near tie decides how the heads share the budget: one row may change heads
            'near_cut': [l for l, gap in enumerate(picked['cut_gaps']) if gap <= NEAR],
            'window_error': f.put(settle_share(errors[0]), 'f64'), 'future_error': f.put(settle_share(errors[1]), 'f64')}


def write_cache(data, folder):
    t, meta = read_safetensors(os.path.join(data, 'cache.safetensors'))
    layers, memo = list(dumped_layers(t, meta, float(meta['scale']))), {}
    f, answers = GoldenFile('dump_cache'), []
    for name in [n for n in NAMES + MORE_NAMES if n not in NEEDS_MORE]:
        sources = ['none'] if ref.expand(name)['scorer'] in NO_QUERIES else ['query', 'given'] + ['sums'] * (name in ('h2o', 'vatp'))
        answers += [cache_answer(f, name, keep, source, layers, int(meta['layers']), memo) for source in sources for keep in KEEPS]
    f.write(folder, {'operation': 'dump_cache', 'dumped_layers': json.loads(meta['dumped_layers']), 'answers': answers})


def hkvd_answer(f, metric, diff, rows, suffix, ratio):
    r = ref.hkvd_select(diff, suffix=suffix, ratio=ratio)
    g = ref.golden_set(diff, np.arange(rows), len(r['hkvd']), NEAR)
    return {'metric': metric, 'ratio': ratio, 'exact': f.put(g['exact'], 'i32'), 'pool': f.put(g['pool'], 'i32'),
            'share': float(settle_share(diff[r['hkvd']].sum() / diff[:rows].sum()))}


def write_blend(data, folder, layer=1):
    t, _ = read_safetensors(os.path.join(data, 'blend.safetensors'))
    fresh, old = (t['layers.%d.%s_v' % (layer, kind)].transpose(1, 0, 2) for kind in ('fresh', 'reused'))
    f, answers = GoldenFile('dump_blend'), []
    for metric in ('l2', 'relative'):
        diff = np.zeros(len(fresh))                     # the suffix has no cached row and is recomputed anyway
        diff[:len(old)] = settle(ref.hkvd_diff(fresh[:len(old)], old, metric))
        answers += [hkvd_answer(f, metric, diff, len(old), len(fresh) - len(old), ratio) for ratio in (.05, .1, .15, .2)]
    f.write(folder, {'operation': 'dump_blend', 'layer': layer, 'cached_rows': len(old), 'rows': len(fresh), 'answers': answers})


if __name__ == '__main__':
    write_cache(sys.argv[1], sys.argv[2])
    write_blend(sys.argv[1], sys.argv[2])
