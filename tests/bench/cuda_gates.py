#!/usr/bin/env python3
"""Gates without a clock for the CUDA kernels: registers, spills and stack of every kernel on every
architecture, read from the compiler's report.

  cuda_gates.py [--nvcc NVCC] [--arch 80 90 ...]

Prints one row per kernel and architecture. Exit code 1 when a kernel spills, uses a stack, needs more
registers than its bar, or has no bar.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Registers a thread may use, so that as many blocks fit on a multiprocessor as the kernel is made
# for. Templates: the first pattern that matches the demangled name.
BARS = [
    (r"CompactRows<", 40),
    (r"DivergeRowsKernel<.*, true>", 40),
    (r"DivergeRowsKernel<.*, false>", 64),  # rows of odd types and strides: right, not fast
    (r"RotateKeysKernel", 40),
    (r"SelectKernel", 64),
]


def compile_report(nvcc, source, arch):
    """The report of ptxas for one source and architecture."""
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++20", "-O3", "--expt-relaxed-constexpr", "-Werror", "all-warnings",
                   f"-gencode=arch=compute_{arch},code=sm_{arch}", "-Xptxas", "-v", "-cubin",
                   "-I", str(ROOT), "-I", str(ROOT / "kernels/include"),
                   "-o", f"{folder}/out.cubin", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{source}: nvcc failed\n{done.stderr}")
    return done.stderr


def demangle(name):
    return subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()


def kernels_of(report):
    """(name, registers, stack bytes, spilled bytes) of each kernel in a report."""
    pattern = re.compile(
        r"Compiling entry function '(?P<name>\w+)'.*?"
        r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
        r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers", re.S)
    for found in pattern.finditer(report):
        spilled = int(found["stores"]) + int(found["loads"])
        yield demangle(found["name"]), int(found["registers"]), int(found["stack"]), spilled


def short_name(name):
    """kvtriage::CompactRows<unsigned char>(...) -> CompactRows<unsigned char>"""
    name = re.sub(r"\(kvtriage::(\w+)\)", r"\1 ", name)  # the type before an enumerator's number
    return re.sub(r"\(.*$", "", name.replace("kvtriage::", "").replace("simt::", "")).removeprefix("void ")


def bar_of(name):
    for pattern, bar in BARS:
        if re.search(pattern, name):
            return bar
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--arch", nargs="+", default=["80", "90"])
    options = parser.parse_args()
    failed = False
    print(f"{'kernel':44} {'arch':>6} {'registers':>9} {'bar':>4} {'spilled':>7} {'stack':>5}")
    for source in sorted((ROOT / "kernels/cuda").glob("*.cu")):
        for arch in options.arch:
            found = list(kernels_of(compile_report(options.nvcc, source, arch)))
            if not found:
                sys.exit(f"{source.name}: no kernel in the compiler's report")
            for name, registers, stack, spilled in found:
                bar = bar_of(name)
                wrong = bar is None or registers > bar or stack > 0 or spilled > 0
                failed = failed or wrong
                print(f"{short_name(name):44} {'sm_' + arch:>6} {registers:9} {bar or 'none':>4} "
                      f"{spilled:7} {stack:5}{'  <-- missed' if wrong else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
