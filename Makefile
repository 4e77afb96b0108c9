# Every target does all the set-up it needs and is quick when repeated.
PRESET ?= release
BUILD := build/$(PRESET)
PY := .venv/bin/python
PHASE := tools/dev/phase.sh

.PHONY: help demo test test-sanitizers test-slow test-guard test-jax test-jax-only test-models bench bench-all build setup clean format \
  fuzz-parser

help:
	@echo "make demo         a transformer and a CNN, eager against tenon"
	@echo "make test         C++ tests, Python tests, include arrows"
	@echo "make test-slow    the tests marked slow     make test-models  every model"
	@echo "make test-guard   everything under memory that faults when it is touched outside (half an hour)"
	@echo "make test-jax     HLO made with JAX, compared with JAX's results (own environment in build/jax)"
	@echo "make test-sanitizers  AddressSanitizer, UndefinedBehaviorSanitizer, ThreadSanitizer (builds of their own: an hour on two cores)"
	@echo "make fuzz-parser  the HLO parser under clang's libFuzzer, where clang is installed"
	@echo "make bench        against the peers, a few rows, five minutes; make bench-all: all rows, hours"
	@echo "make format       clang-format"
	@echo "make build        PRESET=release|debug|asan-ubsan|tsan|ci     make clean"

# Only the package: no tools, no tests.
demo: setup $(BUILD)/build.ninja
	@$(PHASE) build cmake --build --preset $(PRESET) --parallel $$(nproc) --target tenon_package
	@$(PY) tools/dev/dev_install.py $(BUILD)/python
	@$(PHASE) demo $(PY) examples/demo.py

test: build
	@tools/dev/test.sh $(PRESET)

test-sanitizers: setup
	@tools/dev/test_sanitizers.sh

test-slow: build
	@$(PHASE) ctest-slow ctest --test-dir $(BUILD) -L slow --output-on-failure
	@TENON_REQUIRE_EXTENSION=1 $(PHASE) pytest-slow $(PY) -m pytest tests -m slow

# Both sides of every array (TENON_GUARD, runtime/guarded_memory.h): C++ tests, the plugin's with OpInfo, conformance, every model.
GUARDED_TESTS := tests/plugin tests/models tests/hlo/test_conformance.py
test-guard: build
	@sysctl -qw vm.max_map_count=1048576 2>/dev/null || echo "vm.max_map_count stays: every guarded array takes mappings, OpInfo's too many"
	@$(PHASE) ctest-guard ctest --test-dir $(BUILD) -L guard --output-on-failure
	@for guard in 1 2; do TENON_GUARD=$$guard TENON_REQUIRE_EXTENSION=1 $(PHASE) pytest-guard-$$guard \
	  $(PY) -m pytest $(GUARDED_TESTS) -m "not slow" || exit 1; done

# jax has an environment of its own: only the tests that compare HLO with it need it.
JAX := build/jax
$(JAX)/bin/pytest:
	@python3 -m venv $(JAX) && $(JAX)/bin/pip install -q "jax>=0.10" ml_dtypes pytest

test-jax: build test-jax-only

test-jax-only: $(JAX)/bin/pytest
	@PYTHONPATH=$(BUILD)/python TENON_REQUIRE_EXTENSION=1 $(JAX)/bin/python -m pytest tests/hlo/test_jax_generated.py tests/hlo/test_python.py

test-models: build
	@TENON_REQUIRE_EXTENSION=1 $(PHASE) models $(PY) -m pytest tests -m models

# SECONDS_OF_FUZZING of libFuzzer on the parser; new inputs that reach new code stay in build/parser-fuzz/corpus.
SECONDS_OF_FUZZING ?= 600
fuzz-parser:
	@tools/dev/fuzz_parser.sh $(SECONDS_OF_FUZZING)

# Peers are what can be imported; BENCH_PY=... is an environment with torch_tenon and more of them (docs/performance.md).
BENCH_PY ?= $(PY)
WRITTEN = --json build/bench.json --markdown build/bench.md --picture build/bench.svg
bench: build
	@$(PHASE) bench $(BENCH_PY) benchmarks/run.py --quick $(WRITTEN)

bench-all: build
	@$(PHASE) bench-all $(BENCH_PY) benchmarks/run.py $(WRITTEN)

$(BUILD)/build.ninja: CMakePresets.json | setup
	@$(PHASE) configure cmake --preset $(PRESET) -DTENON_REQUIRE_TORCH=ON

# ninja configures again by itself when a CMake file, the set of sources or torch changes.
build: setup $(BUILD)/build.ninja
	@$(PHASE) build cmake --build --preset $(PRESET) --parallel $$(nproc)
	@$(PY) tools/dev/dev_install.py $(BUILD)/python

setup:
	@mkdir -p build && rm -f build/phases.log
	@tools/dev/bootstrap.sh

format:
	@git ls-files '*.cc' '*.h' | xargs $$(command -v clang-format-22 || echo clang-format) -i

clean:
	rm -rf build
