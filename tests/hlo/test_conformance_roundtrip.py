"""parse -> print -> parse is structurally equal and a fixed point on the conformance packs, optimised forms included."""

import os
import pathlib
import subprocess
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKS = ["stablehlo_testdata.zip", "stablehlo_interpret.zip", "stablehlo_dynamic.zip", "jax/jax_dumps.zip"]


def _conformance():
    return ROOT.parent / "shared" / "conformance"


def _hlo_opt():
    for build in [os.environ.get("TENON_BUILD_DIR"), ROOT / "build" / "release", ROOT / "build"]:
        if build and (tool := pathlib.Path(build) / "bin" / "hlo-opt").exists():
            return tool
    return None


@pytest.mark.parametrize("mode", [[], ["--canonical"], ["--percent", "--operand-shapes", "--no-metadata"]], ids=str)
@pytest.mark.parametrize("pack", PACKS)
def test_round_trip(pack, mode, tmp_path):
    path = _conformance() / pack
    if not path.exists():
        pytest.skip("conformance round trip: ../shared/conformance is absent")
    if (tool := _hlo_opt()) is None:
        pytest.skip("conformance round trip: no hlo-opt in build/ (or TENON_BUILD_DIR)")
    with zipfile.ZipFile(path) as z:
        names = [n for n in z.namelist() if n.endswith(".hlo")]
        z.extractall(tmp_path, names)
    files = tmp_path / "files"
    files.write_text("\n".join(str(tmp_path / n) for n in names))
    # XLA leaves large constants out of its optimised dumps: those are filled before the trip.
    done = subprocess.run(
        [tool, "--check-roundtrip", "--fill-elided", *mode, f"--files={files}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == f"{len(names)} of {len(names)} files round-trip"
