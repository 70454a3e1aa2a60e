#!/usr/bin/env bash
# run.sh NAME BUILD COMMAND...: runs COMMAND (python, ruff, ...) in the virtual environment NAME with the
# package of this checkout installed and the programs of the build folder BUILD found. Exit code 77: this
# machine cannot have the environment (environment.sh says why).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=$1 build=$(cd "$2" && pwd)
shift 2
environment=$("$here/environment.sh" "$name")
"$here/package.sh" "$environment/bin/python" "$build/python"

export PATH=$environment/bin:$build/python/bin:$build/bin:$PATH PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1
export KVTRIAGE_BIN=$build/bin KVTRIAGED=$build/bin/kvtriaged
exec "$@"
