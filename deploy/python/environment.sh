#!/usr/bin/env bash
# environment.sh NAME: makes the virtual environment NAME (client, llm or vllm, from NAME.txt here) unless it is
# there, and prints its folder. It lies outside the tree, in $KVTRIAGE_PYTHON_CACHE or the user's cache
# folder, under a name made of what it was made from: a changed list is a new environment. It is made with
# the first python3 that will do, or with the one that KVTRIAGE_PYTHON names.
# Exit code 77, with the reason on stderr: this machine cannot have it (no Python, disk or network).
set -euo pipefail
name=$1
here=$(cd "$(dirname "$0")" && pwd)
cache=${KVTRIAGE_PYTHON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvtriage}
llm_gigabytes=12  # 7 installed; the rest while the archives are unpacked
forget_days=30

cannot() {
  echo "environment: no Python environment '$name': $*" >&2
  exit 77
}

# The first python3 that is new enough and can make environments. Debian's may lack ensurepip.
python=
for candidate in ${KVTRIAGE_PYTHON:-python3 /usr/bin/python3}; do
  if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || cannot "a python3 of 3.10 or newer with venv is needed (Debian's python3-venv)"

lists=("$here/client.txt")
[ "$name" = client ] || lists+=("$here/$name.txt" "$here/$name-alone.txt")
made_from=$({ cat "${lists[@]}"; "$python" -c 'import sys; print(sys.version, sys.base_prefix)'; } | sha256sum)
folder=$cache/$name-${made_from:0:12}
mkdir -p "$cache"

install() { "$folder/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-input "$@"; }
install_lists() {
  install -r "$here/$name.txt" && { [ "$name" = client ] || install --no-deps -r "$here/$name-alone.txt"; }
}

# One maker at a time; the others wait and find it made. It is made where it stays, since its scripts
# name its folder, and counts from the moment when the file "complete" is there.
exec 9>"$folder.lock"
flock 9
if [ ! -e "$folder/complete" ] || ! "$folder/bin/python" -c '' 2>/dev/null; then
  rm -rf "$folder"
  free=$(df --output=avail --block-size=1G "$cache" | tail -n 1 | tr -d ' ')
  [ "$name" = client ] || [ "$free" -ge $llm_gigabytes ] ||
    cannot "$free GB free in $cache, and torch wants $llm_gigabytes GB"
  echo "environment: making $folder" >&2
  "$python" -m venv "$folder"
  if ! install_lists >"$folder/pip.log" 2>&1; then
    cat "$folder/pip.log" >&2
    broken=$(grep -E -m 1 'from versions: none|Connection|Timeout|ProtocolError|No space left' "$folder/pip.log" || true)
    rm -rf "$folder"
    [ -z "$broken" ] || cannot "$broken"
    exit 1
  fi
  # Those that no checkout has used for long go.
  find "$cache" -mindepth 2 -maxdepth 2 -path "*/$name-*/complete" -mtime +$forget_days -printf '%h\0' |
    xargs -0 --no-run-if-empty rm -rf
fi
touch "$folder/complete"
echo "$folder"
