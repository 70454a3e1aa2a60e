#!/usr/bin/env bash
# check_on_stand_in.sh TESTS_BIN SOURCE [REPORT]: tests/gpu/check.sh with the emulated programs of TESTS_BIN
# in the places of a package's, on tiny shapes. Device memory is copied to and fro as on a real device and
# is unreadable for the host (script word guard).
set -euo pipefail
programs=$(realpath "$1") source=$(realpath "$2")
folder=$(mktemp -d "${TMPDIR:-/tmp}/kvtriage-gpu.XXXXXX")
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/device"
for name in facts wrappers kernel_timing ipc_probe moves_test repeats_test; do
  ln -s "$programs/gpu_${name}_emulated" "$folder/bin/$name"
done
for name in fuse select rotate divergence quality score; do
  ln -s "$programs/${name}_test" "$folder/bin/${name}_test"
done
export KVTRIAGE_FAKE_CUDA=$folder/device KVTRIAGE_TEST_MIRROR=1 KVTRIAGE_FAKE_CUDA_SCRIPT=guard=1
export KVTRIAGE_GPU_BIN=$folder/bin KVTRIAGE_GPU_DATA=$source/tests/data KVTRIAGE_GPU_TINY=--tiny
export KVTRIAGE_GPU_FILTER='*SharesOfHeads*/Cuda:*PlanesOfMRope/Cuda:*ByHand/Cuda'
export KVTRIAGE_GPU_PATIENCE=8  # the machine may be busy: no limit decides here
export KVTRIAGE_GPU_MOVES='-*ManyRows*' KVTRIAGE_REPORT=${3:-$folder/report.json}
"$source/tests/gpu/check.sh" 2000
python3 - "$KVTRIAGE_REPORT" <<'PYTHON'
import json, sys
parts = {part["part"]: part for part in json.load(open(sys.argv[1], encoding="utf-8"))["parts"]}
assert list(parts) == "facts wrappers correctness determinism sanitizer timing sharing python_client".split(), list(parts)
for name, part in parts.items():
    left_out = ("skipped: not installed", "skipped: this package has no Python client")
    assert part["state"] == "ok" or part["state"].startswith(left_out), part
assert any(line.startswith("device ") for line in parts["facts"]["lines"])
PYTHON
