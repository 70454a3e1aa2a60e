#!/usr/bin/env bash
# The demo: a real model's KV cache, compressed under every policy at four budgets, then the rows of
# reused chunks that are worth recomputing. run.sh BIN_DIR. Everything it starts ends with it.
set -euo pipefail
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
data=tests/data

scratch=$(mktemp -d "${TMPDIR:-/tmp}/kvtriage-demo.XXXXXX")
service=
cleanup() {
  [ -n "$service" ] && kill "$service" 2>/dev/null && wait "$service" 2>/dev/null || true
  rm -rf "$scratch"
}
trap cleanup EXIT

"$bin/kvtriaged" --listen.uds="$scratch/kvtriage.sock" --listen.metrics=127.0.0.1:0 2>"$scratch/log" &
service=$!
for _ in $(seq 100); do
  grep -q '"event":"started"' "$scratch/log" && break
  kill -0 "$service" 2>/dev/null || { cat "$scratch/log" >&2; exit 1; }
  sleep 0.1
done
metrics=$(sed -n '/"event":"started"/s/.*"metrics":"\([^"]*\)".*/\1/p' "$scratch/log")
run() { "$bin/kvtriage" "$@" --endpoint "$scratch/kvtriage.sock"; }

# criticalkv and expected-attention need tensors that the dump does not have.
policies=$(run policies --json | python3 -c 'import json,sys; print(",".join(p["name"] for p in json.load(sys.stdin)["policies"] if p["scorer"] not in ("critical", "expected-attention")))')
echo "A prompt of 827 tokens in SmolLM2-135M's KV cache (4 of 30 layers), lent to kvtriaged by a worker process:"
echo
run compress --dump $data/cache.safetensors --policy snapkv+obc-joint --keep 0.2
echo
echo "CacheBlend: the same prompt glued from five cached chunks; which rows to recompute at layer 1, by V and by K?"
echo
for metric in v k; do
  run hkvd --dump $data/blend.safetensors --layer 1 --ratio 0.15 --metric $metric
done
echo
echo "Every policy at four budgets; scores from the last 64 query rows, Q + O + LSE in one pass:"
echo
run compress --dump $data/cache.safetensors --policy "$policies" --keep 0.1,0.2,0.3,0.4 --no-strips
echo
echo "Live metrics: http://$metrics/metrics"
if [ -t 0 ] && [ -t 1 ]; then
  read -r -n 1 -s -p "Press a key to end the demo." || true
  echo
else
  curl -s "http://$metrics/metrics" | grep -E '^kvtriage_(rpc_requests_total\{method="(Compress|Rerotate|SelectRecompute)",result="ok"|tokens_kept_total|evicted_bytes_total)' || true
fi
