#!/usr/bin/env bash
# Runs every benchmark of a build: run.sh BUILD_DIR. Fails when a "must" was missed in three tries, or
# a gate of the CUDA kernels, which need no clock.
set -uo pipefail
build=$1
scratch=$(mktemp -d "${TMPDIR:-/tmp}/kvtriage-bench.XXXXXX")
service=
cleanup() {
  [ -n "$service" ] && kill "$service" 2>/dev/null && wait "$service" 2>/dev/null
  rm -rf "$scratch"
}
trap cleanup EXIT

echo "Ratios to ceilings and peers measured in the same run, on: $(sed -n '/model name/{s/.*: //p;q}' /proc/cpuinfo), $(nproc) core(s)"
status=0
for stem in score compact divergence select; do
  echo "== $stem"
  "$build/bench_bin/${stem}_bench" | grep -v '^{' || status=1
done

echo "== compress"
"$build/bin/kvtriaged" --listen.uds="$scratch/kvtriage.sock" --listen.metrics=127.0.0.1:0 2>"$scratch/log" &
service=$!
for _ in $(seq 100); do
  grep -q '"event":"started"' "$scratch/log" && break
  sleep 0.1
done
"$build/bench_bin/compress_bench" "$scratch/kvtriage.sock" | grep -v '^{' || status=1

echo "== kvpress, the same work on the same CPU"
here=$(dirname "$0")
"$here/../../deploy/python/run.sh" llm "$build" python "$here/kvpress_bench.py"
case $? in
  0) ;;
  77) echo "skipped: no Python environment with torch and kvpress on this machine" ;;
  *) status=1 ;;
esac

echo "== CUDA kernels: registers, spills, instructions"
"$build/bench_bin/cuda_gates" || status=1
echo "== CUDA kernels: bytes, bank conflicts, launches"
"$build/bench_bin/cuda_counts_bench" || status=1
echo "== CUDA kernels: predicted times"
python3 "$(dirname "$0")/predicted_times.py"
exit $status
