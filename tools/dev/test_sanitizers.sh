#!/usr/bin/env bash
# test_sanitizers.sh: what reads outside, what is undefined, what races. make test-sanitizers.
#   AddressSanitizer and UndefinedBehaviorSanitizer   all C++ tests, and the plugin's quick tests under a preloaded libasan
#   ThreadSanitizer                                   runtime and cache; compiles, calls and forks of several threads at once, through the C
#                                                     seam and, libtsan preloaded, through torch.compile
# Goes on after a failing test; the exit code is 1 if anything failed.
set -u
cd "$(dirname "$0")/../.."
logs=build/logs
mkdir -p "$logs"
failed=0

run() {  # run NAME COMMAND...
  local name=$1
  shift
  tools/dev/phase.sh "$name" "$@" 2>&1 | tee "$logs/$name.log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
}

build() {  # build PRESET
  [ -f "build/$1/build.ninja" ] || cmake --preset "$1" -DTENON_REQUIRE_TORCH=ON || return 1
  cmake --build --preset "$1" --parallel "$(nproc)"
}
export -f build  # phase.sh runs it

run build-asan build asan-ubsan
[ "$failed" -eq 0 ] || exit 1  # the tests would be another build's
run ctest-asan ctest --preset asan-ubsan -j "$(nproc)"

# PyTorch is not instrumented: what it leaks and defines twice isn't ours. Faults of its threads go to faulthandler as ever.
# test_process replaces signal handlers, which are the sanitizer's here.
PYTHONPATH=build/asan-ubsan/python TENON_REQUIRE_EXTENSION=1 \
  LD_PRELOAD="$(${CXX:-c++} -print-file-name=libasan.so) $(${CXX:-c++} -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:handle_segv=0 UBSAN_OPTIONS=print_stacktrace=1 \
  run pytest-asan .venv/bin/python -m pytest -q tests/plugin/test_backend.py tests/plugin/test_edge_cases.py \
  tests/plugin/test_bad_input.py tests/plugin/test_faults.py tests/plugin/test_bookkeeping.py tests/hlo/test_python.py

run build-tsan build tsan
[ -x build/tsan/bin/runtime_test ] || exit 1
run ctest-tsan ctest --preset tsan

# The extension and libtenon are instrumented, Python and PyTorch are not. No forks: libtsan's allocator holds none of its locks over one;
# tests/plugin/test_threads.py forks without it.
PYTHONPATH=build/tsan/python LD_PRELOAD="$(${CXX:-c++} -print-file-name=libtsan.so) build/tsan/tests/libtenon_tsan_mutex.so" \
  TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:suppressions=$PWD/tests/tsan.supp" \
  run threads-tsan .venv/bin/python tests/plugin/threads_storm.py --forks 0

printf '\n== time of each phase\n'
cat build/phases.log
exit $failed
