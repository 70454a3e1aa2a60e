#!/usr/bin/env bash
# run.sh BUILD: runs the plan behind client/python/EVAL.md with the kvtriaged of the build folder BUILD, then
# writes that page and its plots. Results are kept in BUILD/eval, so a run that was stopped goes on.
set -euo pipefail
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
# Threads of the model that spin after their work would take the cores from the service.
export OMP_WAIT_POLICY=passive
in_environment() { "$root/deploy/python/run.sh" llm "$build" "$@"; }

in_environment python -m kvtriage.eval run --plan findings --out "$build/eval" --resume
in_environment python -m kvtriage.eval report --out "$build/eval" \
  --page "$root/client/python/EVAL.md" --plots "$root/client/python/eval"
