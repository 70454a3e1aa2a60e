#!/usr/bin/env python3
"""Makes every golden file again in a temporary folder and compares it with the committed one, byte for byte.

    python3 regenerate_test.py DATA_DIR        DATA_DIR/golden holds the committed files
"""
import filecmp
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    data = sys.argv[1]
    committed = os.path.join(data, 'golden')
    with tempfile.TemporaryDirectory() as fresh:
        for command in (['make_golden.py', fresh], ['make_dump_golden.py', data, fresh]):
            subprocess.run([sys.executable, '-B', os.path.join(HERE, command[0])] + command[1:], check=True)
        names = sorted(set(os.listdir(fresh)) | set(os.listdir(committed)))
        same, different, missing = filecmp.cmpfiles(fresh, committed, names, shallow=False)
        size = sum(os.path.getsize(os.path.join(committed, n)) for n in os.listdir(committed))
    for name in different + missing:
        print('differs or stands on one side only:', name)
    print('%d files equal, %d not, %d bytes' % (len(same), len(different + missing), size))
    return 1 if different or missing or size >= 5 << 20 else 0


if __name__ == '__main__':
    sys.exit(main())
