#!/usr/bin/env bash
# clang-format and clang-tidy over our own sources. lint.sh BUILD_DIR [--format-only]
set -euo pipefail
build=$1
cd "$(dirname "$0")/../.."
# catalogue.h is generated
mapfile -t sources < <(git ls-files '*.cc' '*.h' '*.cu' '*.cuh' ':!service/observe/catalogue.h')
clang-format --dry-run -Werror "${sources[@]}"
echo "lint: ${#sources[@]} files are formatted"
[ "${2:-}" = "--format-only" ] && exit 0
mapfile -t units < <(git ls-files 'kernels/**/*.cc' 'service/**/*.cc' 'client/**/*.cc')
printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p "$build"
echo "lint: ${#units[@]} sources are clang-tidy clean"
