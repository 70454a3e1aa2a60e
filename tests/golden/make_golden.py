#!/usr/bin/env python3
"""Writes the golden files of the compress, quality, rotation, blending and decode cases. Needs NumPy only.

    python3 make_golden.py OUT_DIR
"""
import math
import sys

import numpy as np

import ref_np as ref
from golden_blend import write_blend
from golden_cases import PYRAMIDS, SHAPES, compress_cases, hkvd_cases
from golden_compress import GAP, NEEDS_OUTPUTS, NO_QUERIES, answer, lag_gap, store, tie_is_sharp
from golden_decode import write_decode
from golden_file import GoldenFile, settle, settle_gap, settle_share

TYPES = ('f32', 'f16', 'bf16')
NEGATIVE_TOLERANCE = {'of_largest': 1e-5, 'relative': 1e-5, 'relative_floor': 1e-1}
LAG_GAP = 3e-6              # the order inside a partition is right in float32
SCORE_TOLERANCE = {'of_largest': 2e-5, 'relative': 1e-4, 'relative_floor': 1e-6}


def before_rope(x, number, scale_shape, scale):
    """The inputs with the queries of all rows before RoPE."""
    hq, hk, n, dk, dv = scale_shape
    return dict(x, Qpre=ref.grid_values(number * 1000 + 7, (hq, n, dk)), scale=scale)


def fp8_rows(stream, shape, kind, scale, per_row):
    """Rows as the codes of a stream, none of them NaN or infinite, mean them; scales times 1, 2 or 3 if `per_row`."""
    code = (ref.splitmix64(stream, np.arange(int(np.prod(shape)))) & np.uint64(0xBF)).astype(np.uint8).reshape(shape)
    factor = 1.0 + (np.arange(shape[1])[None] + np.arange(shape[0])[:, None]) % 3 if per_row else np.ones(shape[:2])
    return ref.from_fp8(code, kind) * (scale * factor)[..., None]


def inputs_of(c, number, scale_shape):
    hq, hk, n, dk, dv = scale_shape
    x = ref.make_inputs(number, hq, hk, n, c['rows'], dk, dv, hidden=c.get('hidden', 0), knobs=c['knobs'])
    if 'fp8' in c:
        f = c['fp8']
        x['K'] = fp8_rows(number * 1000 + 2, x['K'].shape, f['format'], f['k_scale'], f['per_row'])
        x['V'] = fp8_rows(number * 1000 + 3, x['V'].shape, f['format'], f['v_scale'], f['per_row'])
    if c.get('v_in_k'):
        x['V'] = x['K'][..., :dv]
    return x


def layers_of(c, number, scale_shape):
    return [(inputs_of(c, number + 1000 * l, scale_shape), c.get('first_layer', 0) + l) for l in range(c['layers'])]


def answers_of(c, layers, scale, b):
    """[(names of the inputs it holds for, answer)]."""
    p = c['policy']
    given = ['given-' + t for t in TYPES]
    def make(source):
        return answer(p, layers, scale, source, b, 0.0 if c['ties'] else GAP, c['measure'],
                      c.get('model_layers', c.get('first_layer', 0) + c['layers']), c.get('logits', {}))
    if p['scorer'] == 'expected':
        return [(['moments'] + ['before'] * p.get('cov', True), make('query'))]
    if p['scorer'] in NO_QUERIES:
        return [(['none'], make('query'))]
    if p['scorer'] in NEEDS_OUTPUTS or c['measure']:
        return [(['query'], make('query'))] + [([g], make(g)) for g in given]
    return [(['query'] + given, make('query'))]          # O does not matter, and the LSE hardly


def is_clear(c, a):
    """Nothing about the sets hangs on rounding."""
    if not c['ties']:
        return a['gap'] > GAP
    return all(tie_is_sharp(g) for g in a['picked']['lists'])


def solve(c, b):
    """The first case number whose sets are clear, with its answers. `b` is the kept count."""
    shape = SHAPES[c['shape']]
    scale = float(np.float32(shape[3] ** -0.5))
    for number in range(c['number'], c['number'] + 500000, 10000):
        layers = layers_of(c, number, shape)
        if c['policy']['scorer'] == 'expected':
            layers = [(before_rope(x, number + 1000 * l, shape, scale), index) for l, (x, index) in enumerate(layers)]
        kept = b
        if c.get('cut_a_tie'):
            cuts = (k for k in range(60, 200)
                    if answers_of(c, layers, scale, k)[0][1]['picked']['lists'][0]['gap'] == 0)
            kept = next(cuts, None)
        answers = answers_of(c, layers, scale, kept) if kept else []
        if c['policy']['scorer'] == 'lagkv' and min(lag_gap(x, c['policy']) for x, _ in layers) < LAG_GAP:
            continue
        if answers and all(is_clear(c, a) for _, a in answers):
            return number, scale, kept, answers
    raise SystemExit('no clear case number for ' + c['id'])


def more_parts(p):
    """Parts that few policies have."""
    out = {name: p[name] for name in ('lag', 'explicit', 'first_stage', 'eps', 'future', 'cov') if name in p}
    if p['layers'] == 'pyramid':
        out['beta'] = p['beta']
    for axis in ('layers', 'heads'):
        if p[axis] == 'explicit':
            out['explicit_' + axis] = p['counts']
    return out


def write_compress(c, folder):
    p, (hq, hk, n, dk, dv) = c['policy'], SHAPES[c['shape']]
    number, scale, b, answers = solve(c, n if c['ratio'] is None else ref.budget(n, ratio=c['ratio']))
    f = GoldenFile(c['id'])
    queries = p['scorer'] not in NO_QUERIES
    more = {name: c[name] for name in ('logits', 'fp8', 'v_in_k') if name in c}
    f.write(folder, {
        'operation': 'compress', 'case_number': number, 'knobs': c['knobs'], 'layers': c['layers'],
        'first_layer': c.get('first_layer', 0), **({'model_layers': c['model_layers']} if 'model_layers' in c else {}), 'scale': scale, 'input_types': TYPES,
        'shape': {'Hq': hq, 'Hk': hk, 'N': n, 'W': c['rows'], 'dk': dk, 'dv': dv,
                  **({'hidden': c['hidden']} if 'hidden' in c else {})},
        'policy': {'name': c['name'], 'scorer': p['scorer'], 'window_all': p['rows'] == 'all',
                   'window_last': p['rows'] if queries and p['rows'] != 'all' else 0, 'reduce': p['reduce'],
                   'pool': p['pool'] or 'none', 'kernel': p['kernel'], 'sinks': p['sinks'], 'recent': p['recent'],
                   'recent_share': p['recent_share'], 'granularity': p['granularity'],
                   'alpha': p['alpha'] if p['heads'] == 'adaptive' else None,
                   'kept_ratio': None if c.get('cut_a_tie') else c['ratio'],
                   'kept_tokens': b if c.get('cut_a_tie') else None, 'random_key': p.get('random_key', 0),
                   **more_parts(p)},
        'budget': b, 'score_tolerance': NEGATIVE_TOLERANCE if p['scorer'][:4] == 'key_' else SCORE_TOLERANCE, 'quality_tolerance': 1e-5,
        'answers': [store(f, sources, a, c['ties']) for sources, a in answers], **more})


def hkvd_answer(f, diff, n, suffix, amount):
    r = ref.hkvd_select(diff, suffix=suffix, **amount)
    cand = np.setdiff1d(np.arange(n), r['must'])
    total = diff[cand].sum()
    if 0 < len(r['hkvd']) < len(cand) and 1 - r['gap'] < GAP:
        return None
    return dict(amount, must=f.put(r['must'], 'i32'), hkvd=f.put(r['hkvd'], 'i32'), rows=f.put(r['rows'], 'i32'),
                base=r['base'], gap=settle_gap(r['gap']),
                share=float(settle_share(diff[r['hkvd']].sum() / total)) if total > 0 else 0.0)


def write_hkvd(name, first, suffix, ratio, factor, folder):
    n, hk, d = 512, 8, 64
    for number in range(first, first + 500000, 10000):
        new = ref.grid_values(number * 1000 + 3, (n, hk, d)) * factor
        old = np.where((np.arange(n) % 3 == 0)[:, None, None], ref.grid_values(number * 1000 + 6, (n, hk, d)) * factor, new)
        f, metrics = GoldenFile(name), []
        for metric in ('l2', 'relative'):
            diff = settle(ref.hkvd_diff(new, old, metric))
            ranked = np.sort(diff)[::-1]
            threshold = float(settle((ranked[60] + ranked[61]) / 2))
            metrics.append({'metric': metric, 'divergence': f.put(diff, 'f64'),
                            'answers': [hkvd_answer(f, diff, n, suffix, a) for a in ({'ratio': ratio}, {'threshold': threshold})]})
        if all(a for m in metrics for a in m['answers']):
            break
    picked = ref.hkvd_select(ref.hkvd_diff(new, old), suffix=suffix, ratio=ratio)
    rows = picked['rows']
    positions = 10 + np.arange(n) // 2                   # equal positions see each other
    limits = ref.blend_limits(rows, positions)
    if len(picked['hkvd']) and len(rows) < n:            # a triangle aligned to the bottom right is wrong
        assert not np.array_equal(ref.blend_limits(rows, np.arange(n)), ref.row_limits(len(rows), n))
    f.write(folder, {'operation': 'hkvd', 'case_number': number, 'shape': {'N': n, 'Hk': hk, 'd': d}, 'factor': factor,
                     'input_types': TYPES, 'suffix': suffix, 'metrics': metrics, 'positions': f.put(positions, 'i32'),
                     'limits': f.put(limits, 'i32'), 'score_tolerance': SCORE_TOLERANCE})


def write_pyramids(folder):
    f, protected, beta = GoldenFile('pyramid'), 16, 20
    counts = [ref.pyramid_counts(layers, b - protected, n - protected, beta) for layers, n, b in PYRAMIDS]
    f.write(folder, {'operation': 'pyramid', 'protected': protected, 'beta': beta, 'layers_rows_budget': PYRAMIDS,
                     'slots': f.put_lists(counts)})


def main():
    folder = sys.argv[1]
    write_pyramids(folder)
    for c in compress_cases():
        write_compress(c, folder)
    for h in hkvd_cases():
        write_hkvd(*h, folder)
    write_blend(GoldenFile, folder)
    write_decode(GoldenFile, folder)


if __name__ == '__main__':
    main()
