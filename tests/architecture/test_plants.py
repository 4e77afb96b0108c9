"""What ships has no planted bug (hlo/plant.h): the wheel's configuration compiles them away."""

import pathlib
import re
import shutil
import subprocess

import pytest

try:
    import tomllib
except ImportError:  # Python 3.10
    tomllib = pytest.importorskip("tomli")

ROOT = pathlib.Path(__file__).resolve().parents[2]
NUMBERS = "TENON_PLANT\\((k\\w+), (\\d+)"


def _cmake_defines():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["cmake"]["define"]


def test_the_option_follows_the_tests():
    text = (ROOT / "CMakeLists.txt").read_text()
    assert re.search(r"option\(TENON_PLANTS .*\$\{TENON_BUILD_TESTS\}\)", text)
    defines = _cmake_defines()
    assert defines["TENON_BUILD_TESTS"] == "OFF" and "TENON_PLANTS" not in defines


def test_the_wheel_s_configuration_has_none(tmp_path):
    """Configures as `pip wheel .` does, without torch, and looks at every command line of the library."""
    if not shutil.which("cmake") or not shutil.which("ninja"):
        pytest.skip("no cmake or ninja")
    defines = {**_cmake_defines(), "TENON_REQUIRE_TORCH": "OFF", "TENON_LLVM_STATIC": "OFF"}
    command = ["cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", *(f"-D{k}={v}" for k, v in defines.items())]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "compile_commands.json").read_text()
    ours = [line for line in commands.splitlines() if '"command"' in line]
    assert len(ours) > 100
    assert all("-DTENON_NO_PLANTS=1" in line for line in ours)


def test_without_plants_the_condition_is_a_constant(tmp_path):
    source = tmp_path / "plant.cc"
    plants = re.findall(NUMBERS, (ROOT / "hlo" / "plant.h").read_text())
    assert [int(number) for _, number in plants] == list(range(1, 11))
    checks = "\n".join(f"static_assert(!tenon::Planted(tenon::Plant::{name}));" for name, _ in plants)
    source.write_text(f'#include "hlo/plant.h"\n{checks}\nstatic_assert(!tenon::kPlantsBuilt);\n')
    compiler = shutil.which("c++") or pytest.skip("no C++ compiler")
    command = [compiler, "-std=c++20", f"-I{ROOT}", "-fsyntax-only", str(source)]
    assert subprocess.run([*command, "-DTENON_NO_PLANTS=1"], capture_output=True).returncode == 0
    assert subprocess.run(command, capture_output=True).returncode != 0, "with plants it is none"


def test_every_plant_stands_in_the_compiler():
    names = {name for name, _ in re.findall(NUMBERS, (ROOT / "hlo" / "plant.h").read_text())}
    used = set()
    for folder in ["passes", "backends"]:
        for path in (ROOT / folder).rglob("*.cc"):
            used |= set(re.findall(r"Planted\(Plant::(k\w+)\)", path.read_text()))
    assert used == names
