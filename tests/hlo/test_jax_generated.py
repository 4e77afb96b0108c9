"""Programs made on the spot with JAX must run on the evaluator and on the CPU backend and give what JAX gives.

jax is a development dependency of this file alone (pip install jax jaxlib ml_dtypes). TENON_JAX_SEED and
TENON_JAX_PROGRAMS choose another run; a failure prints the seed that makes its program again.
"""

import collections
import os

import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The evaluator rounds after every instruction; XLA:CPU must too, to be comparable. Less optimisation compiles sooner.
os.environ.setdefault("XLA_FLAGS", "--xla_allow_excess_precision=false --xla_backend_optimization_level=1")
jax = pytest.importorskip("jax", reason="generated JAX programs: jax isn't installed")
jax.config.update("jax_enable_x64", True)

SEED = int(os.environ.get("TENON_JAX_SEED", "20260101"))
PROGRAMS = int(os.environ.get("TENON_JAX_PROGRAMS", "200"))
WANTED = 0.98
# |got - want| <= tolerance * (1 + |want| + largest |want|): errors of a chain of steps, relative to its size.
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 8e-3, "bfloat16": 6e-2, "complex64": 5e-5, "complex128": 1e-9}


class JaxRefused(Exception):
    """XLA:CPU can't compile the program: it isn't counted."""


def text_of(program, inputs):
    module = jax.jit(program, keep_unused=True).lower(*inputs).compiler_ir("hlo")
    return module.as_hlo_text(print_large_constants=True)


def wide(x):
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def difference(got, want):
    """None, or what is wrong."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape}, wanted {want.dtype}{want.shape}"
    if got.size == 0 or want.dtype.kind in "biu":
        off = got != want
    else:
        tolerance = TOLERANCE[want.dtype.name]
        got, want = wide(got), wide(want)
        with np.errstate(all="ignore"):
            finite = np.isfinite(want)
            scale = 1 + np.abs(want) + np.max(np.abs(want), initial=0, where=finite)
            close = finite & (np.abs(got - want) <= tolerance * scale)
        off = ~(close | (got == want) | (np.isnan(got) & np.isnan(want)))
    if not off.any():
        return None
    at = np.unravel_index(np.argmax(off), off.shape)
    return f"{off.sum()} of {off.size} off, first at {list(map(int, at))}: got {got[at]!r}, wanted {want[at]!r}"


def wrong_with(engine, want):
    """None, or why the program failed on this engine."""
    try:
        got = engine()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if wrong := difference(g, w):
            return f"step {i}: {wrong}"
    return None


def compiled(hlo, text):
    module = hlo.Module(text)
    module.compile(excess_precision=False)
    return module


def check(hlo, program, inputs):
    """Why the program failed, by engine."""
    try:
        want = [np.asarray(x) for x in jax.jit(program, keep_unused=True)(*inputs)]
    except Exception as error:
        raise JaxRefused from error
    text = text_of(program, inputs)
    engines = {
        "evaluator": lambda: hlo.evaluate(text, inputs),
        "CPU backend": lambda: compiled(hlo, text).run(inputs),
    }
    return {name: why for name, engine in engines.items() if (why := wrong_with(engine, want))}


def test_generated_programs(hlo, capsys):
    from hlo.jax_programs import make

    failures = {"evaluator": {}, "CPU backend": {}}
    steps, total = collections.Counter(), 0
    for seed in range(SEED, SEED + PROGRAMS):
        program, inputs, names = make(seed)
        if not names:
            continue
        try:
            wrong = check(hlo, program, inputs)
        except JaxRefused:
            continue
        total += 1
        steps.update(names)
        for engine, why in wrong.items():
            failures[engine][seed] = (names, why)
    with capsys.disabled():
        print(f"\ngenerated JAX programs: seed {SEED}, {sum(steps.values())} steps of {len(steps)} kinds")
        for engine, failed in failures.items():
            print(f"  {engine}: {total - len(failed)} of {total} right")
            for seed, (names, why) in failed.items():
                print(f"    seed {seed} {' '.join(names)}: {why[:300]}")
    assert total >= 0.9 * PROGRAMS
    for failed in failures.values():
        assert total - len(failed) >= WANTED * total
