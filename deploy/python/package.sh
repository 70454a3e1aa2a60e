#!/usr/bin/env bash
# package.sh PYTHON INTO: installs the package of client/python into the folder INTO as pip would for a
# user, unless what is there was made from the same sources. PYTHON has setuptools and grpcio-tools.
set -euo pipefail
python=$1 into=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$(dirname "$into")"
exec 9>"$into.lock"
flock 9

# A copy is built: no build folder or stubs of earlier work get in, and the checkout stays clean.
copy=$(mktemp -d "$into.XXXXXX")
trap 'rm -rf "$copy"' EXIT
tar -C "$source/client/python" --exclude=./build --exclude='*.egg-info' --exclude=__pycache__ \
  --exclude=./src/kvtriage/v1 -cf - . | tar -C "$copy" -xf -
cp -r "$source/proto" "$copy/proto"
state=$(cd "$copy" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum)
[ "$(cat "$into/.sources" 2>/dev/null)" = "$state" ] && exit 0

"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation \
  --target "$copy/installed" "$copy"
echo "$state" >"$copy/installed/.sources"
rm -rf "$into"
mv "$copy/installed" "$into"
