"""Rotation and blending cases: positions, angles, two check layers, and the toy transformer end to end."""
import numpy as np

import ref_np as ref
from golden_file import settle_gap, settle_share

POSITIONS = [0, 1, 2, 3, 7, 16, 17, 100, 511, 1000, 4095, 4096, 20000, 32768, 65535, 100000, 131072]
# id, number, channels of a row, rotated ones, first of them, pairing, theta, scaling
ROPES = [('rope-half', 301, 64, 64, 0, 'half', 1e4, {'kind': 'none'}),
         ('rope-interleaved', 302, 64, 64, 0, 'interleaved', 1e4, {'kind': 'none'}),
         ('rope-partial', 303, 64, 24, 0, 'half', 1e4, {'kind': 'linear', 'factor': 4.0}),
         ('rope-offset', 304, 64, 32, 18, 'interleaved', 1e5, {'kind': 'none'}),
         ('rope-llama3', 305, 128, 128, 0, 'half', 5e5,
          {'kind': 'llama3', 'factor': 8.0, 'low': 1.0, 'high': 4.0, 'original': 8192}),
         ('rope-yarn', 306, 128, 128, 0, 'half', 1e4,
          {'kind': 'yarn', 'factor': 4.0, 'original': 4096, 'beta_fast': 32.0, 'beta_slow': 1.0})]


def write_rope(f, name, number, d, r, offset, pairing, theta, scaling, folder):
    n = len(POSITIONS)
    keys = ref.grid_values(number * 1000 + 2, (1, n, d))
    old = np.array(POSITIONS)
    new = old[(np.arange(n) * 5 + 3) % n]                # every distance, both ways, and one row that stays
    new[4] = old[4]
    speeds = ref.inv_freq(theta, r, **scaling)
    answers = [{'mode': mode, 'keys': f.put(settle_share(
        ref.rotate(keys, ref.delta_angle(old, new, speeds, mode), pairing, offset)), 'f64')}
        for mode in ('exact', 'table')]
    f.write(folder, {'operation': 'rope', 'case_number': number, 'shape': {'Hk': 1, 'N': n, 'd': d},
                     'rotary_dim': r, 'offset': offset, 'pairing': pairing, 'theta': theta, 'scaling': scaling,
                     'old': f.put(old, 'i32'), 'new': f.put(new, 'i32'), 'answers': answers,
                     'tolerance_of_norm': 2e-6})


def write_rerotate(f, folder):
    """Kept rows, others for each head, to positions 0 .. kept - 1."""
    number, hk, n, d, b = 307, 2, 300, 64, 45
    keys = ref.grid_values(number * 1000 + 2, (hk, n, d))
    old = 7 + np.arange(n) + np.arange(n) // 50          # gaps of earlier evictions
    kept = [np.sort(np.argsort(ref.grid_values(number * 1000 + 8 + h, (n,)), kind='stable')[:b]) for h in range(hk)]
    speeds = ref.inv_freq(1e4, d)
    turned = [ref.rotate(keys[h][kept[h]], ref.delta_angle(old[kept[h]], np.arange(b), speeds)) for h in range(hk)]
    f.write(folder, {'operation': 'rerotate', 'case_number': number, 'shape': {'Hk': hk, 'N': n, 'd': d}, 'theta': 1e4,
                     'old': f.put(old, 'i32'), 'kept': f.put_lists(kept), 'tolerance_of_norm': 2e-6,
                     'keys': f.put(settle_share(np.array(turned)), 'f64')})


def write_prefix(f, folder):
    """Two check layers behind a prefix hit: .3, then .15 of the first base, among the first one's rows."""
    number, n, hk, d, prefix, suffix = 417, 512, 8, 64, 100, 20
    old = [None, None]
    new = [ref.grid_values((number + 1000 * l) * 1000 + 3, (n, hk, d)) for l in (0, 1)]
    for l in (0, 1):
        other = ref.grid_values((number + 1000 * l) * 1000 + 6, (n, hk, d))
        old[l] = np.where((np.arange(n) % 3 == 0)[:, None, None], other, new[l])
    diffs = [ref.hkvd_diff(new[l], old[l]) for l in (0, 1)]
    one = ref.hkvd_select(diffs[0], prefix=prefix, suffix=suffix, ratio=.3)
    two = ref.hkvd_select(diffs[1], prefix=prefix, suffix=suffix, ratio=.15, within=one['hkvd'], base=one['base'])
    assert 1 - one['gap'] > 1e-4 and 1 - two['gap'] > 1e-4 and len(two['hkvd']) == int(one['base'] * .15)
    layers = [{'ratio': ratio, 'hkvd': f.put(r['hkvd'], 'i32'), 'rows': f.put(r['rows'], 'i32'), 'base': int(r['base']),
               'gap': settle_gap(r['gap'])} for ratio, r in ((.3, one), (.15, two))]
    f.write(folder, {'operation': 'hkvd-prefix', 'case_number': number, 'shape': {'N': n, 'Hk': hk, 'd': d},
                     'prefix': prefix, 'suffix': suffix, 'layers': layers})


def write_toy(f, folder):
    """Two chunks of 24 tokens and a suffix of 8; the output of the recomputed rows and K of the last layer."""
    number, n, chunks, suffix = 419, 56, (24, 24), 8
    toy = ref.Toy(number)
    x = ref.grid_values(number * 1000 + 7, (n, toy.D))
    keys, values, out = toy.prefill(x, np.arange(n))
    blends = []
    for partial in (False, True):
        k1, v1, rows, o1 = toy.blend(x, chunks, suffix, 1.0, partial=partial)
        assert len(rows) == n and np.abs(o1 - out).max() < 1e-12
        k, v, rows, o = toy.blend(x, chunks, suffix, .15, partial=partial)
        _, _, _, wrong = toy.blend(x, chunks, suffix, .15, partial=partial, wrong_mask=True)
        assert np.abs(wrong - o).max() > 1e-3
        blends.append({'write_back': 'partial' if partial else 'full', 'ratio': .15, 'rows': f.put(rows, 'i32'),
                       'output': f.put(settle_share(o), 'f64'), 'keys': f.put(settle_share(k[-1]), 'f64'),
                       'values': f.put(settle_share(v[-1]), 'f64')})
    f.write(folder, {'operation': 'blend-toy', 'case_number': number, 'rows': n, 'chunks': list(chunks),
                     'suffix': suffix, 'check_layer': 1, 'prefill': f.put(settle_share(out), 'f64'), 'blends': blends})


def write_blend(make_file, folder):
    for rope in ROPES:
        write_rope(make_file(rope[0]), *rope, folder)
    write_rerotate(make_file('rerotate-S'), folder)
    write_prefix(make_file('hkvd-prefix'), folder)
    write_toy(make_file('blend-toy'), folder)
