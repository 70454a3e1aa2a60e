#!/usr/bin/env bash
# pack.sh BUILD SOURCE: puts what BUILD/gpu_bin holds, with data and check.sh, into BUILD/kvtriage-gpu.tar.gz.
# KVTRIAGE_SERVICE names a folder with kvtriaged and kvtriage that go along, for check.sh --demo and for the
# Python client's tests, which go along too where its stubs can be made (deploy/python).
set -euo pipefail
build=$1 source=$2
package=$build/kvtriage-gpu
limit=$((60 << 20))

rm -rf "$package"
mkdir -p "$package/bin" "$package/lib" "$package/data"
cp "$build"/gpu_bin/* "$package/bin"
for program in kvtriaged kvtriage; do
  [ -z "${KVTRIAGE_SERVICE:-}" ] || cp "$KVTRIAGE_SERVICE/$program" "$package/bin"
done
strip "$package"/bin/*
# Shared objects that are none of the C library's, which is there on every machine.
ldd "$package"/bin/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv)\.so' | while read -r library; do
  cp -L "$library" "$package/lib/"
done
cp "$source/tests/data/simt_wrappers.txt" "$source/tests/data/cache.safetensors" "$package/data"
cp "$source/tests/gpu/check.sh" "$source/tests/gpu/README.md" "$package"
if [ -n "${KVTRIAGE_SERVICE:-}" ] && environment=$("$source/deploy/python/environment.sh" client); then
  "$source/deploy/python/package.sh" "$environment/bin/python" "$build/python"
  cp -r "$build/python" "$package/python"
  mkdir -p "$package/tests/python" "$package/tests/golden"
  cp -r "$source/tests/python/device" "$source/tests/python/conftest.py" "$package/tests/python"
  cp "$source/tests/golden/ref_np.py" "$package/tests/golden"
fi

tar -C "$build" -czf "$package.tar.gz" kvtriage-gpu
size=$(stat -c %s "$package.tar.gz")
needs=$(objdump -T "$package"/bin/* | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
echo "$package.tar.gz: $((size >> 20)) MiB, needs ${needs/_/ } and a GPU driver"
if [ "$size" -gt "$limit" ]; then
  echo "more than 60 MiB" >&2
  exit 1
fi
