#!/usr/bin/env bash
# Checks the CUDA backend on this machine's GPU: check.sh [SECONDS] (240). From a package (make
# gpu-package) it needs nothing but a driver; from the repository it builds the package's programs first.
# Each part has its own limit, and one that overruns is ended, so that the others still run. Writes
# report.json (KVTRIAGE_REPORT: elsewhere) and prints one table. Exit code 1 when a part failed or overran;
# 0 without a GPU, which is said.
#
#   check.sh --demo   compresses the package's real cache on the device through kvtriaged, if it has one
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
total=240
demo=
case ${1:-} in
  --demo) demo=1 ;;
  ?*) total=$1 ;;
esac
report=${KVTRIAGE_REPORT:-$PWD/report.json}
logs=$(mktemp -d "${TMPDIR:-/tmp}/kvtriage-check.XXXXXX")
service=
cleanup() {
  [ -n "$service" ] && kill "$service" 2>/dev/null && wait "$service" 2>/dev/null
  rm -rf "$logs"
}
trap cleanup EXIT

# For a run on the tests' stand-in: other programs and data, small shapes, fewer tests, longer limits.
bin=${KVTRIAGE_GPU_BIN:-$here/bin} data=${KVTRIAGE_GPU_DATA:-$here/data}
: "${KVTRIAGE_GPU_TINY:=}" "${KVTRIAGE_GPU_FILTER:=*/Cuda}" "${KVTRIAGE_GPU_MOVES:=*}" "${KVTRIAGE_GPU_PATIENCE:=1}"
if [ ! -d "$bin" ]; then  # in the repository
  root=$(cd "$here/../.." && pwd)
  cmake --preset gpu -S "$root" -B "$root/build/gpu" >"$logs/build" &&
    cmake --build "$root/build/gpu" --target gpu_package >>"$logs/build" || { cat "$logs/build"; exit 1; }
  bin=$root/build/gpu/kvtriage-gpu/bin data=$root/build/gpu/kvtriage-gpu/data
fi
no_gpu=77

# ---- parts -------------------------------------------------------------------------------------

facts() {
  "$bin/facts" $KVTRIAGE_GPU_TINY || return
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=driver_version,clocks.sm,clocks.mem,clocks_throttle_reasons.active --format=csv,noheader
  fi
}
wrappers() { "$bin/wrappers" "$data/simt_wrappers.txt" --write "$logs/wrappers.dump"; }
# The first program that fails ends the part.
tests() {
  local filter=$1 program
  shift
  for program in "$@"; do
    "$bin/$program" --gtest_brief=1 --gtest_filter="$filter" || return
  done
}
correctness() {
  tests "$KVTRIAGE_GPU_FILTER" fuse_test select_test rotate_test divergence_test quality_test score_test &&
    tests "$KVTRIAGE_GPU_MOVES" moves_test
}
determinism() { tests '*' repeats_test; }
sanitizer() {
  command -v compute-sanitizer >/dev/null || { echo "skipped: not installed"; return 0; }
  local tool
  for tool in memcheck racecheck synccheck; do
    compute-sanitizer --tool "$tool" --error-exitcode 1 "$bin/moves_test" --gtest_brief=1 --gtest_filter='*FewRows' &&
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$bin/repeats_test" --gtest_brief=1 --gtest_filter='*Divergence:*KeyNorms' ||
      return
  done
}
timing() { "$bin/kernel_timing" $KVTRIAGE_GPU_TINY; }
sharing() { "$bin/ipc_probe" $KVTRIAGE_GPU_TINY; }
# The Python client's device tests with the driver that is here, between this machine's Python and kvtriaged.
python_client() {
  local home=${bin%/*}
  [ -d "$home/python" ] || { echo "skipped: this package has no Python client"; return 0; }
  [ -x "$bin/kvtriaged" ] || { echo "skipped: this package has no kvtriaged"; return 0; }
  python3 -c 'import numpy, grpc, google.protobuf, pytest' 2>/dev/null ||
    { echo "skipped: a python3 with numpy, grpcio, protobuf and pytest is needed"; return 0; }
  KVTRIAGE_TEST_DEVICE=real KVTRIAGE_BIN=$bin PYTHONPATH=$home/python PYTHONDONTWRITEBYTECODE=1 \
    python3 -m pytest -q -p no:cacheprovider --confcutdir="$home" "$home/tests/python/device"
}

# ---- runs a part, keeps what it said -----------------------------------------------------------

rows=() failed=0 start=$SECONDS
run() {
  local name=$1 limit=$(($2 * KVTRIAGE_GPU_PATIENCE)) left=$((total - (SECONDS - start))) began=$EPOCHREALTIME state code
  [ "$left" -lt "$limit" ] && limit=$left
  if [ "$limit" -le 0 ]; then
    rows+=("$name|left out: no time|0.0"); : >"$logs/$name"; failed=1
    return
  fi
  # A process group of its own, so that nothing of a part outlives it.
  ( set -m
    "$name" >"$logs/$name" 2>&1 & job=$!
    ( sleep "$limit"; kill -TERM -- -$job; sleep 2; kill -KILL -- -$job ) 2>/dev/null & watch=$!
    wait $job; code=$?
    kill -- -$watch 2>/dev/null
    exit $code ) 2>/dev/null
  code=$?
  case $code in
    0) state=ok; grep -q '^skipped:' "$logs/$name" && state=$(grep -m1 '^skipped:' "$logs/$name") ;;
    "$no_gpu") state="skipped: no GPU" ;;
    137 | 143) state="overran $limit s"; failed=1 ;;
    *) state="failed ($code)"; failed=1 ;;
  esac
  rows+=("$name|$state|$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $began }")")
}

write_report() {
  local row name state seconds first=1
  {
    echo '{"parts":['
    for row in "${rows[@]}"; do
      IFS='|' read -r name state seconds <<<"$row"
      [ -n "$first" ] || echo ','
      first=
      printf '{"part":"%s","state":"%s","seconds":%s,"lines":[' "$name" "$state" "$seconds"
      sed -e 's/\\/\\\\/g; s/"/\\"/g; s/\t/ /g; s/[[:cntrl:]]//g; s/^/"/; s/$/"/' "$logs/$name" | paste -sd, -
      printf ']}'
    done
    echo ']}'
  } >"$report"
}

run_demo() {
  if [ ! -x "$bin/kvtriaged" ]; then
    echo "skipped: this package has no kvtriaged (make gpu-package SERVICE=<folder with kvtriaged and kvtriage>)"
    return 0
  fi
  "$bin/kvtriaged" --listen.uds="$logs/kvtriage.sock" --listen.metrics=127.0.0.1:0 2>"$logs/service" &
  service=$!
  for _ in $(seq 100); do
    grep -q '"event":"started"' "$logs/service" && break
    sleep 0.1
  done
  "$bin/kvtriage" doctor --endpoint "$logs/kvtriage.sock" &&
    "$bin/kvtriage" compress --endpoint "$logs/kvtriage.sock" --dump "$data/cache.safetensors" \
      --policy snapkv,h2o --keep 0.2
}

if ! "$bin/facts" --tiny >"$logs/probe" 2>&1; then
  if grep -q '^skipped: no GPU' "$logs/probe"; then
    cat "$logs/probe"
    rows=("facts|skipped: no GPU|0.0")
    cp "$logs/probe" "$logs/facts"
    write_report
    exit 0
  fi
fi
if [ -n "$demo" ]; then
  run_demo
  exit
fi

run facts 5
run wrappers 10
run correctness 60
run determinism 15
run sanitizer 45
run timing 60
run sharing 30
run python_client 60
write_report
printf '\n%-13s %8s  %s\n' part seconds state
for row in "${rows[@]}"; do
  IFS='|' read -r name state seconds <<<"$row"
  printf '%-13s %8s  %s\n' "$name" "$seconds" "$state"
done
for part in facts timing sharing; do
  printf '\n%s\n' "== $part"
  cat "$logs/$part"
done
for row in "${rows[@]}"; do
  IFS='|' read -r name state _ <<<"$row"
  case $state in failed* | overran*) printf '\n== %s\n' "$name"; tail -40 "$logs/$name" ;; esac
done
exit $failed
