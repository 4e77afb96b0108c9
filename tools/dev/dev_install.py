"""Makes a build's torch_tenon importable in the environment of this interpreter, by a .pth file.

Usage: python dev_install.py <build>/python. The entry point torch looks for lies there too.
"""

import pathlib
import sys
import sysconfig


def main(site: str) -> None:
    purelib = pathlib.Path(sysconfig.get_path("purelib"))
    line = str(pathlib.Path(site).resolve()) + "\n"
    target = purelib / "torch_tenon_dev.pth"
    if not target.exists() or target.read_text() != line:
        target.write_text(line)
        print(f"torch_tenon: {target} -> {line}", end="")
    if (purelib / "torch_tenon").exists():
        print(f"warning: the wheel installed in {purelib} is used instead of this build:"
              " pip uninstall torch-tenon", file=sys.stderr)


main(sys.argv[1])
