#!/bin/sh
# on_stand_in.sh PROGRAM ARGUMENTS...: a program on a device of the tests' stand-in, in a folder of its own.
folder=$(mktemp -d "${TMPDIR:-/tmp}/kvtriage-gpu.XXXXXX")
trap 'rm -rf "$folder"' EXIT
KVTRIAGE_FAKE_CUDA=$folder "$@"
