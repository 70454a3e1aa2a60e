"""The table of golden cases: numbers, shapes, knobs and policies."""
import ref_np as ref

# Hq, Hk, N, dk, dv
SHAPES = {'T': (2, 1, 17, 8, 8), 'S': (8, 2, 300, 64, 64), 'M': (32, 8, 1024, 128, 128), 'X': (6, 2, 777, 40, 56),
          'MLA': (16, 1, 512, 576, 512)}
W16 = dict(ref.BASE, rows=16, recent=16)
NAMES = ['streaming', 'h2o', 'tova', 'snapkv', 'adakv', 'vatp'] + [
    base + '+' + scorer for base in ('h2o', 'tova', 'snapkv', 'adakv') for scorer in ref.EXTRA]


# Later names; every name has a case of its own.
MORE_NAMES = ['pyramidkv', 'keydiff', 'knorm', 'lagkv', 'criticalkv', 'expected-attention']


def case(ident, number, shape, policy, removed, rows=None, **more):
    """`removed` is the share removed; rows = query rows supplied (the window's when not given)."""
    policy = dict(policy) if isinstance(policy, dict) else ref.expand(policy)
    n = SHAPES[shape][2]
    supplied = rows or {'all': n, 0: 0}.get(policy['rows'], policy['rows'])
    return dict({'id': ident, 'number': number, 'shape': shape, 'policy': policy, 'ratio': None if removed is None else 1.0 - removed,
                 'rows': min(n, supplied), 'knobs': [], 'layers': 1, 'ties': False, 'measure': False, 'name': ''}, **more)


def explicit_cases(plain):
    """Explicit rows per sequence, layer and head, and explicit counts per layer and head (2 layers, 2 heads)."""
    rows = {'sequence': [[0, 7, 100, 299]], 'layer': [[1, 50], [2, 51, 290]], 'head': [[3], [4, 5], [6, 200], [8, 150, 151]]}
    out = [case('explicit-S-rows-' + g, 227, 'S', dict(plain, sinks=2, explicit={'granularity': g, 'lists': lists}), .7, layers=2)
           for g, lists in rows.items()]
    half = dict(plain, recent=0, recent_share=.25, pool='avg', kernel=5)
    out += [case('explicit-S-counts-layers', 227, 'S', dict(half, layers='explicit', counts=[60, 130]), None, layers=2),
            case('explicit-S-counts-heads', 227, 'S', dict(half, heads='explicit', counts=[1, 90, 300, 24]), None, layers=2),
            case('explicit-S-counts-adaptive', 227, 'S',
                 dict(plain, layers='explicit', counts=[60, 130], heads='adaptive', alpha=.2), None, layers=2)]
    return out


def compress_cases():
    out, number = [], 101
    for kind in ('value', 'key', 'joint'):
        for shape in ('T', 'S', 'M', 'X'):
            out.append(case('obc-%s-%s' % (kind, shape), number, shape, dict(W16, scorer=kind), .7))
            number += 1
    joint, key = dict(W16, scorer='joint'), dict(W16, scorer='key')
    for how in ('mean', 'max', 'pre'):
        out.append(case('obc-joint-S-' + how, number, 'S', dict(joint, reduce=how), .7))
        number += 1
    out += [case('obc-key-S-max7', 116, 'S', dict(key, pool='max', kernel=7), .7, ties=True),
            case('obc-key-S-avg5', 117, 'S', dict(key, rows=64, recent=64, pool='avg', kernel=5), .7),
            case('obc-peak-S', 119, 'S', joint, .7, knobs=['peak']),
            case('obc-big-S', 120, 'S', joint, .7, knobs=['big']),
            case('obc-sink-M', 121, 'M', joint, .7, knobs=['sink', 'hot']),
            case('drop-S', 125, 'S', dict(W16, scorer='drop'), .7),
            case('drop-X', 126, 'X', dict(W16, scorer='drop'), .7),
            case('drop-peak-S', 127, 'S', dict(W16, scorer='drop'), .7, knobs=['peak'])]
    slopes = [2.0 ** -(h + 1) for h in range(SHAPES['S'][0])]
    out += [case('obc-softcap-S', 122, 'S', joint, .7, measure=True, logits={'softcap': 5.0}),
            case('obc-alibi-S', 123, 'S', joint, .7, measure=True, logits={'alibi_slopes': slopes}),
            case('obc-learnedsink-S', 124, 'S', joint, .7, measure=True, logits={'sink_logits': [0.7] * SHAPES['S'][0]})]
    for number, kind in ((128, 'joint'), (129, 'drop')):
        name = ('drop' if kind == 'drop' else 'obc') + '-mla'
        out.append(case(name, number, 'MLA', dict(W16, scorer=kind), .7, v_in_k=True))
    for kind in ('e4m3', 'e5m2'):
        for per_row in (False, True):
            scales = {'format': kind, 'k_scale': .25, 'v_scale': .75, 'per_row': per_row}
            name = 'obc-fp8-%s-%sS' % (kind, 'rows-' if per_row else '')
            out.append(case(name, 130, 'S', joint, .7, measure=not per_row, fp8=scales))
    for number, pool, kernel in ((201, 'avg', 5), (202, 'avg', 7), (203, 'max', 5), (204, 'max', 7)):
        snap = dict(ref.BASE, rows=32, recent=32, pool=pool, kernel=kernel)
        out.append(case('snap-S-%s%d' % (pool, kernel), number, 'S', snap, .5, ties=pool == 'max'))
    for number, name in ((205, 'tova'), (206, 'h2o'), (207, 'vatp')):
        out.append(case(name + '-S', number, 'S', name, .5, name=name))
    for number, alpha in ((209, 0.0), (210, 0.2), (211, 0.5), (212, 1.0)):
        out.append(case('ada-S-%g' % alpha, number, 'S', dict(ref.expand('adakv'), alpha=alpha), .6))
    plain = dict(ref.BASE, rows=16, recent=16)
    out += [case('streaming-S', 213, 'S', 'streaming', .5, name='streaming', ties=True),
            case('critical-S', 208, 'S', dict(ref.expand('criticalkv'), rows=32, recent=32), .5, hidden=96),
            case('critical-S-0', 208, 'S', dict(ref.expand('criticalkv'), rows=32, recent=32, first_stage=0.0), .5, hidden=96),
            case('critical-X-adaptive', 208, 'X',
                 dict(ref.expand('criticalkv'), rows=16, recent=16, heads='adaptive', alpha=.2), .7, hidden=50),
            case('knorm-S', 214, 'S', 'knorm', .5, name='knorm'),
            case('keydiff-S', 215, 'S', 'keydiff', .5, name='keydiff'),
            case('lag-4-32', 217, 'S', dict(ref.expand('lagkv'), lag=32), .5, ties=True),
            case('lag-16-64', 218, 'S', dict(ref.expand('lagkv'), sinks=16, lag=64), .5, ties=True),
            case('lag-4-128-short', 219, 'T', 'lagkv', .5, ties=True),
            case('ea-S', 220, 'S', 'expected-attention', .5),
            case('ea-nocov', 221, 'S', dict(ref.expand('expected-attention'), cov=False), .5),
            case('ea-eps', 222, 'S', dict(ref.expand('expected-attention'), eps=1e-2), .5),
            case('ea-X', 223, 'X', 'expected-attention', .7),
            case('random-S', 216, 'S', dict(ref.BASE, scorer='random', rows=0, random_key=216), .5, ties=True, first_layer=3),
            case('layer-S', 225, 'S', dict(joint, granularity='layer'), .7),
            case('sequence-S', 226, 'S', dict(joint, granularity='sequence'), .7, layers=3),
            case('flat-S', 228, 'S', plain, .7, knobs=['flat'], ties=True),
            case('dup-S', 229, 'S', plain, .7, knobs=['dup'], ties=True, cut_a_tie=True)]
    for number, percent in ((501, 10), (502, 20), (503, 40)):
        out.append(case('quality-S-%d' % percent, number, 'S', joint, 0, ratio=percent / 100.0, measure=True))
    for i, name in enumerate(NAMES):
        out.append(case('policy-' + name, 601 + i, 'S', name, .7, rows=300 if name[:3] == 'h2o' or name == 'vatp' else 80, name=name))
    more = {'pyramidkv': dict(removed=.5, rows=80, layers=3, first_layer=1, model_layers=4),
            'lagkv': dict(removed=.3, ties=True), 'criticalkv': dict(removed=.5, rows=80, hidden=96)}
    for i, name in enumerate(MORE_NAMES):
        out.append(case('policy-' + name, 651 + i, 'S', name, name=name, **dict(dict(removed=.7), **more.get(name, {}))))
    return out + explicit_cases(plain)


# Layers, rows, kept rows; 16 rows are protected.
PYRAMIDS = [(layers, n, b) for layers in (1, 4, 28, 32) for n in (256, 1024, 2787, 8192) for b in (60, 128, 250, 1638) if b < n]


def hkvd_cases():
    """(id, number, suffix, ratio, factor of the values)."""
    out = []
    for i, suffix in enumerate((0, 1, 37, 512)):
        for j, ratio in enumerate((0.0, .15, .16, 1.0)):
            out.append(('hkvd-S-%d-%g' % (suffix, ratio), 401 + 4 * i + j, suffix, ratio, 1.0))
    return out + [('hkvd-big', 418, 37, .15, 32.0), ('blend-limits', 420, 19, .15, 1.0)]
