#!/usr/bin/env python3
"""The CUDA backend calls what the stand-in has, and nothing else of CUDA.

  symbols_test.py DECLARATIONS LIBRARY...

Compares the undefined CUDA symbols of the libraries with the calls that DECLARATIONS declares. What
nvcc itself puts into an object (names that start with two underscores) does not count.
"""

import re
import subprocess
import sys


def declared(header):
    with open(header, encoding="utf-8") as file:
        return set(re.findall(r"\b(cuda[A-Z]\w*|cu[A-Z]\w*)\(", file.read()))


def called(library):
    listing = subprocess.run(["nm", "--undefined-only", library], capture_output=True, text=True,
                             check=True).stdout
    return set(re.findall(r" U (cuda[A-Z]\w*|cu[A-Z]\w*)$", listing, re.M))


def main():
    known = declared(sys.argv[1])
    assert "cudaIpcOpenMemHandle" in known and "cuMemGetAddressRange" in known, known
    wrong = False
    for library in sys.argv[2:]:
        calls = called(library)
        assert "cudaMemcpyAsync" in calls, f"{library}: no CUDA calls at all?"
        for name in sorted(calls - known):
            print(f"{library} calls {name}, which the stand-in does not have")
            wrong = True
        print(f"{library}: {len(calls)} calls")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
