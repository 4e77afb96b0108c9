#!/usr/bin/env bash
# fuzz_parser.sh SECONDS [libFuzzer options]: builds the preset parser-fuzz and runs it from the checked-in corpus and the texts
# of tests/. Exit 0: no finding. A finding stays in build/parser-fuzz/findings.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-600}
shift || true
if ! command -v clang++-22 > /dev/null; then
  echo "fuzz-parser: clang++-22 is not installed (Debian: clang-22 libclang-rt-22-dev), nothing was fuzzed"
  exit 0
fi
out=build/parser-fuzz
cmake --preset parser-fuzz > /dev/null
cmake --build --preset parser-fuzz
mkdir -p "$out/corpus" "$out/findings" "$out/seeds"
find tests/text tests/ops tests/passes tests/backends tests/regress -name '*.hlo' -size -16k \
  -exec cp -t "$out/seeds" {} + 2> /dev/null || true
exec "$out/bin/hlo_parser_fuzzer" -max_total_time="$seconds" -dict=tests/parser_fuzz/hlo.dict -max_len=4096 -timeout=10 \
  -rss_limit_mb=2048 -artifact_prefix="$out/findings/" -print_final_stats=1 "$@" "$out/corpus" tests/parser_fuzz/corpus "$out/seeds"
