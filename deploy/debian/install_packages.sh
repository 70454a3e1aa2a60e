#!/usr/bin/env bash
# Installs what packages.txt lists and this machine lacks; does nothing (and needs no rights) when
# nothing is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if ! command -v dpkg-query >/dev/null; then
  echo "install_packages: not a Debian system; install the packages of $here/packages.txt yourself" >&2
  exit 0
fi

missing=()
while read -r package; do
  case "$package" in ''|'#'*) continue ;; esac
  state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$state" = "install ok installed" ] || missing+=("$package")
done <"$here/packages.txt"
[ ${#missing[@]} -eq 0 ] && exit 0

echo "install_packages: installing ${missing[*]}" >&2
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_packages: run as root, or install sudo" >&2; exit 1; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
