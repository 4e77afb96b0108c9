#!/usr/bin/env bash
# test.sh PRESET: the arrows, ctest, pytest, random modules, planted bugs, programs made with JAX; goes on after a failure; ends with the
# phases' times and the closing lines of both runners.
set -u
cd "$(dirname "$0")/../.."
preset=${1:-release}
logs=build/logs
mkdir -p "$logs"
failed=0

run() {  # run NAME COMMAND...: a phase with its output kept
  local name=$1
  shift
  tools/dev/phase.sh "$name" "$@" 2>&1 | tee "$logs/$name.log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
}

# A missing extension is a failure here, not a reason to skip.
export TENON_REQUIRE_EXTENSION=1
# Passes are verified in everything that runs here (passes/pipeline.h).
export TENON_VERIFY=1

run arrows .venv/bin/python tools/dev/check_arrows.py
run width .venv/bin/python tools/dev/check_width.py
run twice .venv/bin/python tools/dev/check_twice.py
run paths .venv/bin/python tools/dev/check_paths.py
run ctest ctest --preset "$preset" -j "$(nproc)"
# Of the plugin's tests most time is PyTorch's own Python, on one core: as many processes as cores, whose OpenMP threads don't spin.
run pytest .venv/bin/python -m pytest tests --ignore=tests/plugin
run pytest-plugin env OMP_WAIT_POLICY=passive .venv/bin/python -m pytest tests/plugin -n "$(nproc)" --dist loadfile
# A minute of random modules, other ones each day; what reads outside of an array ends its worker (runtime/guarded_memory.h).
run fuzz env TENON_GUARD=1 "build/$preset/bin/hlo-fuzz" --seed="$(date +%Y%m%d)" --seconds="${TENON_FUZZ_SECONDS:-60}" --size=5 --jobs=2 \
  --save=build/logs/fuzz
# Half a minute of modules with symbols: one executable each at several sizes, and calls that it must refuse.
run fuzz-symbols env TENON_GUARD=1 "build/$preset/bin/hlo-fuzz" --symbols --seed="$(date +%Y%m%d)" \
  --seconds="${TENON_FUZZ_SYMBOLS_SECONDS:-30}" --size=5 --jobs=2 --save=build/logs/fuzz
# Half a minute of modules on the emulated GPU, in several orders of threads and blocks.
run fuzz-gpu "build/$preset/bin/hlo-fuzz" --target=gpu-emulated --seed="$(date +%Y%m%d)" \
  --seconds="${TENON_FUZZ_GPU_SECONDS:-30}" --size=5 --jobs=2 --save=build/logs/fuzz
# Every planted bug is found among the day's modules, and cut to ten instructions. Half a CPU minute; four at most.
run plants "build/$preset/bin/hlo-fuzz" --plants --seed="$(date +%Y%m%d)" --seconds=240 --size=5 --quiet
run plants-symbols "build/$preset/bin/hlo-fuzz" --symbols --plants --seed="$(date +%Y%m%d)" --seconds=120 --size=5 --quiet
run jax make --no-print-directory test-jax-only PRESET="$preset"

printf '\n== time of each phase\n'
cat build/phases.log
printf '\n'
grep -E '^[0-9]+% tests passed|^No tests were found' "$logs/ctest.log"
grep -hE '^=+ .*(passed|failed|error|no tests ran).* =+$' "$logs"/{jax,pytest,pytest-plugin}.log
exit $failed
