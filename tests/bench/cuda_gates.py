#!/usr/bin/env python3
"""Gates without a clock for the CUDA kernels: registers, spills and stack of every kernel on every
architecture, read from the reports that the compiler wrote while it built them, and the
instructions in their PTX.

  cuda_gates.py BUILD --nvcc NVCC --arch 80 90 ...

BUILD is the build folder; --arch are the architectures that it was built for. Prints one row per
kernel and architecture. Exit code 1 when a kernel spills, uses a stack, needs more registers than
its bar, has no bar, is missing for an architecture, or has (or lacks) an instruction that it must
not.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels/cuda"

# Registers a thread may use, so that as many blocks fit on a multiprocessor as the kernel is made
# for. Templates: the first pattern that matches the demangled name.
BARS = [
    (r"CompactRows<", 40),
    (r"DivergeRowsKernel<.*, true>", 40),
    (r"DivergeRowsKernel<.*, false>", 64),  # rows of odd types and strides: right, not fast
    (r"RotateKeysKernel", 40),
    (r"GatherRowsKernel", 64),  # of any type and layout, a few rows a call
    (r"SelectKernel", 64),
    (r"ScoreMmaKernel<", 255),  # two blocks of 128 threads, as many as the shared memory takes
    (r"ScoreTokensKernel<", 192),  # two blocks of 128 threads
    (r"RowPartsKernel|OutputPartsKernel<", 168),
    (r"JoinRowsKernel|JoinOutputsKernel", 80),
    (r"MeasureRowsKernel<", 168),  # three blocks of 128 threads
    (r"ProjectTensorKernel<", 136),  # values of 32 tokens in 64 of them; three blocks of 128 threads
    (r"ProjectValuesKernel|ExpectedLogitsKernel", 80),  # three blocks of 256 threads
    (r"CovarianceKernel", 104),  # 16 sums, what rounding loses of each, 16 products
    # Lists of rows, eight blocks of 128 threads.
    (r"KeyNormsKernel|SumUnitKeysKernel|MeanUnitKeysKernel|KeyDistancesKernel", 64),
    (r"MarkBadRowsKernel|LagDeviationsKernel|ReduceSumsKernel|WeighByMagnitudeKernel", 64),
    (r"SumQueriesKernel|MeanQueriesKernel|CopyMomentsKernel|ValueNormsKernel|PoolKernel", 64),
]

# Instructions by source: what the PTX must have, and what it must not have (besides local memory,
# which nothing may use). A source that is not there is not asked for.
INSTRUCTIONS = {
    "compact.cu": (["cp.async"], []),
    "projected_norms.cu": (["mma.sync", "ldmatrix", "cp.async"], []),
    "score_mma_bf16.cu": (["mma.sync", "ldmatrix", "cp.async", "bf16"], ["div.rn"]),
    "score_mma_f16.cu": (["mma.sync", "ldmatrix", "cp.async", "f16"], ["div.rn"]),
}
NOWHERE = ["ld.local", "st.local"]


def demangle(name):
    return subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()


def kernels_of(report):
    """(name, architecture, registers, stack bytes, spilled bytes) of each kernel in a report."""
    pattern = re.compile(
        r"Compiling entry function '(?P<name>\w+)' for 'sm_(?P<arch>\w+)'.*?"
        r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
        r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers", re.S)
    for found in pattern.finditer(report):
        spilled = int(found["stores"]) + int(found["loads"])
        yield demangle(found["name"]), found["arch"], int(found["registers"]), int(found["stack"]), spilled


def short_name(name):
    """void kvtriage::CompactRows<unsigned char>(...) -> CompactRows<unsigned char>"""
    name = re.sub(r"\(kvtriage::(\w+)\)(?=\d)", r"\1 ", name)  # the type before an enumerator's number
    return re.sub(r"\(.*$", "", name.replace("kvtriage::", "").replace("simt::", "")).removeprefix("void ")


def bar_of(name):
    for pattern, bar in BARS:
        if re.search(pattern, name):
            return bar
    return None


def check_resources(build, sources, archs):
    """Prints the table; returns what is wrong."""
    wrong = []
    print(f"{'kernel':60} {'arch':>6} {'registers':>9} {'bar':>4} {'spilled':>7} {'stack':>5}")
    for source in sources:
        path = build / f"kernels/cuda/CMakeFiles/kvtriage_cuda.dir/{source.name}.o.report"
        found = list(kernels_of(path.read_text())) if path.exists() else []
        for missing in sorted(set(archs) - {arch for _, arch, *_ in found}):
            wrong.append(f"{source.name}: no kernel for sm_{missing} in the compiler's report")
        found.sort(key=lambda kernel: (kernel[0], int(kernel[1].rstrip("af"))))
        for name, arch, registers, stack, spilled in found:
            bar = bar_of(name)
            missed = bar is None or registers > bar or stack > 0 or spilled > 0
            print(f"{short_name(name):60} {'sm_' + arch:>6} {registers:9} {bar or 'none':>4} "
                  f"{spilled:7} {stack:5}{'  <-- missed' if missed else ''}")
            if missed:
                wrong.append(f"{short_name(name)} on sm_{arch}")
    return wrong


def ptx_of(nvcc, source, arch):
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++20", "-O3", "--expt-relaxed-constexpr", f"-arch=compute_{arch}", "-ptx",
                   "-I", str(ROOT), "-I", str(ROOT / "kernels/include"), "-o", f"{folder}/out.ptx", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{source}: nvcc failed\n{done.stderr}")
        return pathlib.Path(folder, "out.ptx").read_text()


def check_instructions(nvcc, sources, arch):
    """The PTX text is nearly the same for all architectures: one is looked at."""
    wrong = []
    print(f"\ninstructions in the PTX for compute_{arch}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        texts = threads.map(lambda source: ptx_of(nvcc, source, arch), sources)
        for source, text in zip(sources, texts):
            needed, unwanted = INSTRUCTIONS.get(source.name, ([], []))
            for word in needed + unwanted + NOWHERE:
                count = len(re.findall(rf"^\s*(?:@\S+ )?(?:\S+\.)?{re.escape(word)}\b", text, re.M))
                missed = (count == 0) == (word in needed)
                if word in needed or missed:
                    print(f"{source.name:60} {word:>12} {count:5}{'  <-- missed' if missed else ''}")
                if missed:
                    wrong.append(f"{source.name}: {count} of {word}")
    if not wrong:
        print(f"local memory ({', '.join(NOWHERE)}) in none of {len(sources)} sources")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--arch", nargs="+", default=["80", "90"])
    options = parser.parse_args()
    sources = sorted(KERNELS.glob("*.cu"))
    wrong = check_resources(options.build, sources, options.arch)
    wrong += check_instructions(options.nvcc, sources, options.arch[-1].rstrip("a"))
    print(f"{len(wrong)} missed" if wrong else "all hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
