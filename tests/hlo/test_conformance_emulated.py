"""The golden outputs of ../shared/conformance on the emulated GPU (libtenon_lab), by the rule of test_conformance.py: rounding after each
instruction, never wrong. What a GPU's kernels cannot compute is the host's, counted and named by opcode.

make test-slow runs all of them; CI every STRIDE-th case.
"""

import collections
import json
import time
import zipfile

import pytest

from hlo.test_conformance import ABSENT, EXCEPTIONS, check, counts, packs

TARGET = "gpu-emulated"
STRIDE = 3
WANTED = 0.99
# Of the instructions that compute, of all cases and of CI's. The rest are sorts, checks, decompositions of matrices and what follows from
# them.
THERE, THERE_OF_SOME = 0.97, 0.95

pytestmark = pytest.mark.skipif(not packs(), reason=ABSENT)


def cases():
    for path in packs():
        pack = zipfile.ZipFile(path)
        for name in sorted(n[:-5] for n in pack.namelist() if n.endswith(".json")):
            case = json.loads(pack.read(name + ".json"))
            if counts(case):
                yield pack, name, case


def judge(hlo, emulated, chosen):
    """(right, {case: why it is wrong}, {case: why it is refused}, instructions there, {opcode: instructions of the host})"""
    right, there, wrong, refused, host = 0, 0, {}, {}, collections.Counter()
    for pack, name, case in chosen:
        try:
            why = check(hlo, pack, name, case, target=TARGET)
        except NotImplementedError as error:
            refused[name] = str(error)
            continue
        if why is None:
            right += 1
            placement = emulated.last_placement()
            there += placement["device"]
            host.update(placement["host_opcodes"])
        elif name not in EXCEPTIONS:
            wrong[name] = why
    return right, wrong, refused, there, host


def report(capsys, what, found, seconds):
    right, wrong, refused, there, host = found
    computing = there + host.total()
    with capsys.disabled():
        print(f"\nconformance on {TARGET}, {what}: {right} right, {len(refused)} refused, {len(wrong)} wrong, {seconds:.0f} s; "
              f"{there} of {computing} instructions in kernels there, the host's: "
              + ", ".join(f"{opcode} {count}" for opcode, count in host.most_common()))
        for name, why in [*wrong.items(), *refused.items()]:
            print(f"  {name}: {why}")
    return right, len(refused), wrong, there, computing


def test_some(hlo, emulated, capsys):
    start = time.perf_counter()
    found = judge(hlo, emulated, list(cases())[::STRIDE])
    seconds = time.perf_counter() - start
    right, refused, wrong, there, computing = report(capsys, f"every {STRIDE}rd case", found, seconds)
    assert wrong == {}
    assert right >= WANTED * (right + refused)
    assert there >= THERE_OF_SOME * computing


@pytest.mark.slow
def test_all(hlo, emulated, capsys):
    start = time.perf_counter()
    found = judge(hlo, emulated, cases())
    right, refused, wrong, there, computing = report(capsys, "all cases", found, time.perf_counter() - start)
    assert wrong == {}
    assert right >= WANTED * (right + refused)
    assert there >= THERE * computing
