#!/bin/sh
# keep_report.sh OBJECT COMMAND...: runs a compiler and keeps what ptxas reports in OBJECT.report.
# Everything else that the compiler says is passed on.
object=$1
shift
"$@" 2>"$object.report"
status=$?
grep -vE '^ptxas info|^    [0-9]+ bytes stack frame' "$object.report" >&2
exit $status
