"""Checks that includes point one way: hlo <- passes <- backends, runtime <- backends, and so on.

Usage: python check_arrows.py [root]. Prints `file:line: what is wrong`, one per violation, and
exits with 1 if there was any. ARROWS is the whole rule; the longest matching folder decides.
"""

import pathlib
import re
import sys

HLO = ["hlo/"]
# runtime knows sizes and shapes, not instructions: programs outlive the modules they came from.
HLO_VALUES = [f"hlo/{name}" for name in (
    "check.h", "dim.h", "layout.h", "literal.h", "primitive_type.h", "shape.h", "types.def")]
NO_TORCH = ["hlo/", "passes/", "runtime/", "backends/", "torch_plugin/aten/"]
EVERYTHING = NO_TORCH + ["hlo/eval/"]

# Folder (or file) -> what it may include. Only listing "hlo/eval/" gives the evaluator: it defines
# the ops, and a product that could call it would sooner or later compute with it.
ARROWS = {
    "hlo/": HLO,
    "hlo/eval/": HLO + ["hlo/eval/"],
    "passes/": HLO + ["passes/"],
    "runtime/": HLO_VALUES + ["runtime/"],
    "backends/": HLO + ["passes/", "runtime/", "backends/"],
    "backends/constant_folding.cc": HLO + ["passes/", "backends/", "hlo/eval/"],
    "backends/common/": HLO + ["passes/", "runtime/", "backends/common/"],
    "backends/cpu/": HLO + ["passes/", "runtime/", "backends/common/", "backends/cpu/"],
    "backends/gpu/": HLO + ["passes/", "runtime/", "backends/common/", "backends/gpu/"],
    "torch_plugin/aten/": HLO + ["runtime/", "torch_plugin/aten/"],
    "torch_plugin/libtenon/": NO_TORCH + ["torch_plugin/libtenon/"],
    "torch_plugin/executor/": NO_TORCH + ["torch_plugin/libtenon/", "torch_plugin/executor/"],
    "torch_plugin/device/": NO_TORCH + [
        "torch_plugin/libtenon/", "torch_plugin/executor/", "torch_plugin/device/"],
    "tools/": EVERYTHING + ["tools/"],
    "benchmarks/": EVERYTHING + ["benchmarks/"],
    "tests/": EVERYTHING + ["tests/", "tools/"],
}

# Foreign headers -> the folders that may include them.
FOREIGN = {
    "torch": (re.compile(r"(torch|ATen|c10|caffe2|pybind11)/|Python\.h$"),
              ("torch_plugin/executor/", "torch_plugin/device/")),
    "LLVM": (re.compile(r"llvm(-c)?/"), ("backends/", "tests/backends/")),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SUFFIXES = {".h", ".cc", ".def", ".inc", ".c", ".cpp", ".cu"}


def source_files(root):
    """Paths of the C++ files under the folders ARROWS knows, relative to root, sorted."""
    tops = sorted({folder.split("/")[0] for folder in ARROWS})
    return sorted(path.relative_to(root).as_posix()
                  for top in tops for path in (root / top).rglob("*")
                  if path.suffix in SUFFIXES and path.is_file())


def longest_match(path, folders):
    return max((f for f in folders if path.startswith(f)), key=len, default=None)


def problem(root, path, quote, header):
    """What is wrong with this include, or None."""
    for name, (pattern, folders) in FOREIGN.items():
        if pattern.match(header) and not (root / header).is_file():
            if path.startswith(folders):
                return None
            return f"{name} header <{header}> outside {' and '.join(folders)}"
    if header.startswith("absl/log/"):
        return f"<{header}>: the Abseil we build with has no absl/log"
    if not (root / header).is_file():
        beside = (root / path).parent / header
        if quote == '"' and beside.is_file():
            return f'"{header}": write includes from the project root'
        return None  # a system header
    owner = longest_match(path, ARROWS)
    if owner is None:
        return f"{path} is in a folder without a row in ARROWS"
    # The most specific rule about the header decides: "hlo/" does not give "hlo/eval/".
    granted = [f for f in ARROWS[owner] if header.startswith(f)]
    if not granted:
        return f'{owner} may not include "{header}"'
    if header.startswith("hlo/eval/") and "hlo/eval/" not in granted:
        return f'{owner} may not include "{header}": the evaluator is for tests and tools'
    return None


def violations(root):
    """All violations under root, as `file:line: message`."""
    root = pathlib.Path(root)
    found = []
    for path in source_files(root):
        text = (root / path).read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            message = problem(root, path, *match.groups()) if match else None
            if message:
                found.append(f"{path}:{number}: {message}")
    return found


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parents[2])
    found = violations(root)
    print("\n".join(found) if found else f"arrows: {len(source_files(root))} files, all one way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
