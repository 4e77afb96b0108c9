#!/usr/bin/env bash
# phase.sh NAME COMMAND...: runs the command, prints how long it took, notes it in build/phases.log.
set -u
cd "$(dirname "$0")/../.."
name=$1
shift
mkdir -p build
printf '\n== %s\n' "$name"
start=$(date +%s.%N)
"$@"
status=$?
line=$(awk -v n="$name" -v a="$start" -v b="$(date +%s.%N)" -v s="$status" \
  'BEGIN { printf "%-12s %8.1f s%s", n, b - a, s ? "   FAILED (exit " s ")" : "" }')
echo "$line" >> build/phases.log
printf '== %s\n' "$line"
exit $status
