"""The evaluator against the golden outputs of ../shared/conformance (its README has the rules).

A case counts when XLA:CPU itself passes it; what the evaluator skips has failed. Without ../shared one line says so and
the cases of tests/ops (eval_test) remain. TENON_CONFORMANCE=/some/folder names another folder of such packs.
"""

import concurrent.futures
import io
import json
import os
import pathlib
import threading
import time
import zipfile

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ.get("TENON_CONFORMANCE") or ROOT.parent / "shared" / "conformance")
# Each case that may fail, and why. Never a whole opcode or a whole type.
EXCEPTIONS = {
    # 60 products, sum|xy| = 342, that cancel to -0.0707842859 (float64). The golden value, summed in float32 in an order of
    # its own, is 1.74e-5 off; its tolerance of 1.14e-5 is met by another float32 order only.
    "t.conv_general_dilated_float32_2_3_9_10_float32_3_3_4_5": "the exact sum is outside the golden's tolerance",
}
READING = threading.Lock()  # numpy parses headers as Python, and Python 3.11's parser counts its depth for all threads at once
WANTED = 0.995
SECONDS = 180  # of the quick preset, on two cores


def packs():
    return sorted(FOLDER.rglob("*.zip")) if FOLDER.is_dir() else []


def wide(array, dtype):
    """Raw bits and narrow floats as float64 (complex128), integers as they are."""
    if array.dtype == np.bool_ or (array.dtype.kind in "iu" and dtype[0] in "su" and dtype[1:].isdigit()):
        return array
    if array.dtype.kind in "iuV":
        import ml_dtypes

        names = {"bf16": "bfloat16", "f4e2m1fn": "float4_e2m1fn"}
        array = array.view(getattr(ml_dtypes, names.get(dtype, dtype.replace("f8", "float8_", 1))))
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def difference(got, want, entry):
    """None, or what is wrong with this output."""
    if got.shape != want.shape:
        return f"shape {got.shape}, wanted {want.shape}"
    got, want = wide(got, entry["dtype"]), wide(want, entry["dtype"])
    if got.dtype.kind in "biu":
        off = got != want
        atol = rtol = 0
    else:
        atol, rtol = entry.get("atol", 0), entry.get("rtol", 0)
        if got.dtype.kind == "c":
            got, want = (np.stack([x.real, x.imag]) for x in (got, want))
        with np.errstate(all="ignore"):
            close = np.abs(got - want) <= atol + rtol * np.abs(want)
        exact = (got == want) | (np.isnan(got) & np.isnan(want))
        off = ~(exact | (close & np.isfinite(want)))
    if not off.any():
        return None
    at = np.unravel_index(np.argmax(off), off.shape)
    return f"{off.sum()} of {off.size} off, first at {list(map(int, at))}: got {got[at]!r}, wanted {want[at]!r}"


def check(hlo, pack, name, case, target=None, passes=False):
    """None, or why the case failed. target: of the compiler; None: the evaluator."""
    def read(entry):
        with READING:
            return np.load(io.BytesIO(pack.read(entry["npy"])))

    try:
        module = hlo.Module(pack.read(name + ".hlo").decode())
        if passes:
            module.run_passes()  # verifies after each that changes something
        inputs = [read(entry) for entry in case["inputs"]]  # raw bits are taken as such
        if target:
            module.compile(target=target, excess_precision=False)
        got = module.run(inputs, target=target) if target else module.evaluate(inputs)
    except Exception as error:
        if target and isinstance(error, NotImplementedError):
            raise
        return f"{type(error).__name__}: {error}"
    if len(got) != len(case["outputs"]):
        return f"{len(got)} outputs, wanted {len(case['outputs'])}"
    for i, (array, entry) in enumerate(zip(got, case["outputs"])):
        if wrong := difference(stored(array, entry), read(entry), entry):
            return f"output {i}: {wrong}"
    return None


def stored(array, entry):
    kind, _, storage = entry["encoding"].partition(":")
    if kind == "bits":
        return np.ascontiguousarray(array).view(storage).reshape(array.shape)
    return array.astype(storage) if kind == "value" else array


def counts(case):
    return case["xla_cpu"]["status"] not in ("fail", "error")


ABSENT = "conformance: ../shared/conformance is absent, only the cases of tests/ops are checked"


def test_conformance(hlo, capsys):
    if not packs():
        with capsys.disabled():
            print(f"\n{ABSENT}")
        pytest.skip(ABSENT)
    start = time.perf_counter()
    failures, total = {}, 0
    for path in packs():
        pack = zipfile.ZipFile(path)
        cases = {n[:-5]: json.loads(pack.read(n)) for n in sorted(pack.namelist()) if n.endswith(".json")}
        cases = {name: case for name, case in cases.items() if counts(case)}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:  # the evaluator runs without the GIL
            reasons = list(pool.map(lambda item: check(hlo, pack, *item), cases.items()))
        failed = {name: why for name, why in zip(cases, reasons) if why}
        failures |= failed
        total += len(cases)
        with capsys.disabled():
            print(f"\nconformance {path.name}: {len(cases) - len(failed)} of {len(cases)}", end="")
    seconds = time.perf_counter() - start
    with capsys.disabled():
        print(f"\nconformance in all: {total - len(failures)} of {total}, {seconds:.1f} s")
        for name, why in failures.items():
            print(f"  {name}: {why}{' (' + EXCEPTIONS[name] + ')' if name in EXCEPTIONS else ''}")
    assert total - len(failures) >= WANTED * total
    assert set(failures) <= set(EXCEPTIONS), "failures that aren't listed as exceptions"
    assert seconds <= SECONDS


def outcome(module, inputs):
    """The bytes of the results, or the error."""
    try:
        return [(x.dtype, x.shape, x.tobytes()) for x in module.evaluate(inputs)]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.skipif(not packs(), reason=ABSENT)
def test_what_was_printed_evaluates_equal(hlo, capsys):
    """Optimised forms and cases that XLA:CPU fails included; elided constants are filled before the trip."""
    different, evaluated, total = [], 0, 0
    for path in packs():
        pack = zipfile.ZipFile(path)
        for file in sorted(n for n in pack.namelist() if n.endswith(".hlo")):
            name = file.removesuffix(".hlo").removesuffix(".opt")
            inputs = [np.load(io.BytesIO(pack.read(e["npy"]))) for e in json.loads(pack.read(name + ".json"))["inputs"]]
            module = hlo.Module(pack.read(file).decode(), fill_elided=True)
            want = outcome(module, inputs)
            for text in (str(module), module.text(percent=True, operand_shapes=True, metadata=False)):
                if outcome(hlo.Module(text), inputs) != want:
                    different.append(file)
            total += 1
            evaluated += not isinstance(want, str)
    with capsys.disabled():
        print(f"\nprinted, parsed, evaluated: {total - len(set(different))} of {total} equal, {evaluated} of them to values")
    assert different == []
    assert evaluated >= 0.98 * total


@pytest.mark.skipif(not packs(), reason=ABSENT)
def test_cpu_backend(hlo, capsys):
    """As the evaluator, rounding after each instruction as it does; never wrong, and nearly nothing refused."""
    wrong, right, refused = {}, 0, 0
    for path in packs():
        pack = zipfile.ZipFile(path)
        for name in sorted(n[:-5] for n in pack.namelist() if n.endswith(".json")):
            case = json.loads(pack.read(name + ".json"))
            if not counts(case):
                continue
            try:
                why = check(hlo, pack, name, case, target="cpu")
            except NotImplementedError:
                refused += 1
                continue
            right += why is None
            if why is not None and name not in EXCEPTIONS:
                wrong[name] = why
    with capsys.disabled():
        print(f"\nconformance of the CPU backend: {right} right, {refused} refused, {len(wrong)} wrong")
        for name, why in wrong.items():
            print(f"  {name}: {why}")
    assert wrong == {}
    assert right >= WANTED * (right + refused)


@pytest.mark.skipif(not packs(), reason=ABSENT)
def test_passes_keep_the_meaning(hlo, capsys):
    """The default pipeline, then the evaluator, by the same rule."""
    wrong, total = {}, 0
    for path in packs():
        pack = zipfile.ZipFile(path)
        for name in sorted(n[:-5] for n in pack.namelist() if n.endswith(".json")):
            case = json.loads(pack.read(name + ".json"))
            if counts(case) and name not in EXCEPTIONS:
                total += 1
                if why := check(hlo, pack, name, case, passes=True):
                    wrong[name] = why
    with capsys.disabled():
        print(f"\nconformance after the passes: {total - len(wrong)} of {total}")
    assert wrong == {}
