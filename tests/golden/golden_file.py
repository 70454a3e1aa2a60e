"""How a golden file looks: <id>.json with everything a reader wants to see, <id>.bin with the arrays.

Arrays are little-endian, each at a multiple of 8 bytes; equal arrays are stored once. Numbers that come from
exp or from long sums are rounded before they are stored (`settle`, `settle_share`), far below every tolerance,
so that another processor or NumPy writes the same bytes.
"""
import hashlib
import json
import math
import os

import numpy as np

BITS = 20       # significant bits of a stored score; its rounding is 5e-7, the tightest tolerance 2e-5


def settle(x):
    """Scores, rounded to BITS significant bits."""
    m, e = np.frexp(np.asarray(x, float))
    return np.ldexp(np.round(m * 2.0 ** BITS) / 2.0 ** BITS, e)


def settle_share(x):
    """Masses, errors and other numbers around 1, rounded to 9 decimals."""
    return np.round(np.asarray(x, float), 9)


def settle_gap(x):
    """A gap for the reader: 5 significant digits, None when there is no next row."""
    return None if math.isinf(x) else float('%.5g' % x)


class GoldenFile:
    def __init__(self, name):
        self.name, self.blobs, self.data, self.seen = name, [], bytearray(), {}

    def put(self, array, dtype):
        """Stores an array as 'f64' or 'i32'; returns its number."""
        array = np.ascontiguousarray(array, {'f64': '<f8', 'i32': '<i4'}[dtype])
        key = (dtype, array.shape, array.tobytes())
        if key not in self.seen:
            self.data += bytes(-len(self.data) % 8)
            self.seen[key] = len(self.blobs)
            self.blobs.append({'dtype': dtype, 'shape': list(array.shape), 'offset': len(self.data),
                               'bytes': array.nbytes})
            self.data += array.tobytes()
        return self.seen[key]

    def put_lists(self, lists):
        """Ragged index lists as {'counts': number, 'rows': number}."""
        lists = [np.asarray(x, np.int32).reshape(-1) for x in lists]
        return {'counts': self.put([len(x) for x in lists], 'i32'),
                'rows': self.put(np.concatenate(lists) if lists else np.zeros(0), 'i32')}

    def write(self, folder, fields):
        head = dict(fields, id=self.name, sha256=hashlib.sha256(self.data).hexdigest(), blobs=self.blobs)
        with open(os.path.join(folder, self.name + '.json'), 'w', encoding='ascii') as f:
            json.dump(head, f, indent=1, sort_keys=True)
            f.write('\n')
        with open(os.path.join(folder, self.name + '.bin'), 'wb') as f:
            f.write(self.data)
