#!/usr/bin/env bash
# Runs every benchmark of a build: run.sh BUILD_DIR. Fails when a "must" was missed in three tries.
set -uo pipefail
build=$1
echo "Ratios to ceilings and peers measured in the same run, on: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- || uname -m), $(nproc) core(s)"
status=0
for bench in score compact divergence select compress; do
  echo "== $bench"
  "$build/bench_bin/${bench}_bench" | grep -v '^{' || status=1
done
exit $status
