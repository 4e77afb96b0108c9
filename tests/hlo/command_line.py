"""tenon's tools, run as a user does."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tool(name: str) -> pathlib.Path:
    for build in [os.environ.get("TENON_BUILD_DIR"), ROOT / "build" / "release", ROOT / "build"]:
        if build and (found := pathlib.Path(build) / "bin" / name).exists():
            return found
    pytest.skip(f"no {name} in build/ (or TENON_BUILD_DIR)")


def run(name: str, *args: object, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess:
    """With `environment` beside the process's own."""
    return subprocess.run([tool(name), *map(str, args)], input=stdin, capture_output=True, text=True, env={**os.environ, **environment})
