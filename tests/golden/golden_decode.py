"""Decode cases: one sequence that grows, drafts that come and go, and what every eviction keeps."""
import numpy as np

import ref_np as ref

GAP = 1e-4
HQ, HK, D, TOKENS = 4, 2, 16, 320
# budget, length above which it evicts, sinks, recent
SMALL, LONG = (24, 27, 2, 8), (128, 128, 0, 16)
# id, number, scorer of the reference, decay, rows that were there before the first call, sizes
CASES = [('decode-attention', 501, 'attention', 1.0, 0, SMALL), ('decode-value', 502, 'value', 1.0, 0, SMALL),
         ('decode-joint', 503, 'joint', 1.0, 0, SMALL), ('decode-drop', 504, 'drop', 1.0, 0, SMALL),
         ('decode-attention-fading', 505, 'attention', 0.875, 0, SMALL),
         ('decode-joint-fading', 506, 'joint', 0.75, 0, SMALL), ('decode-unseen', 118, 'joint', 1.0, 128, LONG)]


def schedule(unseen):
    """(rows, drafts among them, drafts to take back afterwards) of every call."""
    if unseen:
        yield from ((1, 0, 0) for _ in range(64))
        return
    yield 20, 0, 0
    for step in range(80):
        drafts = 3 if step % 5 == 4 else 0
        yield 1 + step % 3 + drafts, drafts, step // 5 % 4 if drafts else 0


def play(number, scorer, decay, unseen, sizes):
    """The steps with their kept rows, and the smallest relative gap at a cut."""
    x = ref.make_inputs(number, HQ, HK, TOKENS, TOKENS, D, D)
    scale = float(np.float32(D ** -0.5))
    budget, trigger, sinks, recent = sizes
    acc, tokens, token = ref.Accumulator(HK, unseen, scorer, decay), [np.arange(unseen)] * HK, unseen
    steps, gap = [], np.inf
    for rows, drafts, back in schedule(unseen):
        new = np.arange(token, token + rows)
        token += rows
        tokens = [np.concatenate([t, new]) for t in tokens]
        k, v = (np.stack([x[name][h, tokens[h]] for h in range(HK)]) for name in 'KV')
        acc.observe(x['Q'][:, new], k, v, scale=scale, draft=drafts)
        n, kept = len(tokens[0]), None
        if n > trigger and drafts == 0:
            protect, _ = ref.protected(n, budget, sinks, recent)
            cand = np.setdiff1d(np.arange(n), protect)
            free = budget - len(protect)
            for h in range(HK):
                ranked = np.sort(acc.s[h, cand])[::-1]
                gap = min(gap, (ranked[free - 1] - ranked[free]) / ranked[0])
            kept = [np.sort(np.concatenate([protect, ref.take(acc.s[h], cand, free)])) for h in range(HK)]
            acc.evict(kept)
            tokens = [t[r] for t, r in zip(tokens, kept)]
        if back:
            acc.rewind(back)
            tokens = [t[:len(t) - back] for t in tokens]
        steps.append({'rows': rows, 'drafts': drafts, 'rewind': back, 'kept': kept})
    assert token <= TOKENS and sum(s['kept'] is not None for s in steps) > 25
    return steps, gap


def write_decode(make_file, folder):
    for name, first, scorer, decay, unseen, sizes in CASES:
        for number in range(first, first + 5000000, 10000):
            steps, gap = play(number, scorer, decay, unseen, sizes)
            if gap > GAP:
                break
        f = make_file(name)
        f.write(folder, {'operation': 'decode', 'case_number': number, 'scorer': scorer, 'decay': decay, 'unseen': unseen,
                         'shape': {'Hq': HQ, 'Hk': HK, 'd': D, 'tokens': TOKENS}, 'scale': float(np.float32(D ** -0.5)),
                         **dict(zip(('budget', 'trigger', 'sinks', 'recent'), sizes)),
                         'steps': [dict(s, kept=None if s['kept'] is None else f.put_lists(s['kept']))
                                   for s in steps]})
