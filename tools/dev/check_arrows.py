"""Checks that includes point one way: hlo <- passes <- backends, runtime <- backends, and so on.

Usage: python check_arrows.py [root]. Prints `file:line: what is wrong`, one per violation, and
exits with 1 if there was any. ARROWS is the whole rule; the longest matching folder decides.
"""

import pathlib
import re
import sys

# These are not given by a row that names their parent: who may include them names them.
ISLANDS = ("hlo/eval/", "backends/cpu/", "backends/gpu/")

# runtime knows sizes and shapes, not instructions: programs outlive the modules they came from.
HLO_VALUES = [f"hlo/{name}" for name in (
    "arena.h", "check.h", "dim/dim.h", "framework_arg.h", "framework_call.h", "json.h", "layout.h", "literal.h", "numeric_types.h",
    "primitive_type.h", "shape.h", "types.def")]
# What library steps call: plain functions on arrays, which the evaluator calls too.
LIBRARY = ["hlo/library/call.h", "hlo/library/custom_calls.h", "hlo/library/lapack_library.h"]
PRODUCT = ["hlo/", "passes/", "runtime/", "backends/", "torch_plugin/aten/"]
WITHOUT_TORCH = PRODUCT + ["hlo/eval/"]

# Folder (or the start of a file's path) -> what it may include besides itself. Few may include the
# evaluator: it defines the ops, and a product that could call it would in the end compute with it.
ARROWS = {
    "hlo/": [],
    "hlo/library/": ["hlo/"],
    "hlo/eval/": ["hlo/"],
    "passes/": ["hlo/"],
    "runtime/": HLO_VALUES + LIBRARY,
    # Ties a module's parameters to a program's inputs, so it must see both.
    "runtime/program/binding.": HLO_VALUES + LIBRARY + ["hlo/module.h", "runtime/"],
    # Targets are values (backends/contract/target.h): only their table knows them by their headers.
    "backends/": ["hlo/", "passes/", "runtime/"],
    "backends/driver/targets.cc": ["hlo/", "passes/", "runtime/", "backends/", "backends/cpu/", "backends/gpu/"],
    "backends/contract/": ["hlo/", "passes/", "runtime/", "backends/codegen/"],
    # What a fusion computes, for any target.
    "backends/codegen/": ["hlo/", "passes/", "runtime/", "backends/contract/kernel.h"],
    "backends/codegen/llvm/": ["hlo/", "passes/", "runtime/", "backends/contract/"],
    "backends/cpu/": ["hlo/", "passes/", "runtime/", "backends/contract/", "backends/codegen/"],
    # How a kernel runs, before there is any code.
    "backends/cpu/plan/": ["hlo/", "passes/", "runtime/", "backends/contract/", "backends/codegen/"],
    "backends/gpu/": ["hlo/", "passes/", "runtime/", "backends/"],
    "torch_plugin/aten/": ["hlo/", "runtime/"],
    "torch_plugin/libtenon/": PRODUCT,
    # Gives the evaluator to the pass that folds constants: the backend has none of its own.
    "torch_plugin/libtenon/options.cc": PRODUCT + ["hlo/eval/", "torch_plugin/libtenon/"],
    # torch_tenon.hlo.evaluate: HLO for people, no part of how a graph of PyTorch runs.
    "torch_plugin/libtenon/hlo_c.cc": PRODUCT + ["hlo/eval/", "torch_plugin/libtenon/"],
    "torch_plugin/executor/": PRODUCT + ["torch_plugin/libtenon/"],
    "torch_plugin/device/": PRODUCT + ["torch_plugin/libtenon/", "torch_plugin/executor/"],
    "tools/": WITHOUT_TORCH,
    "benchmarks/": WITHOUT_TORCH,
    # The GPU's target on an emulator.
    "tools/lab/gpu/": WITHOUT_TORCH + ["backends/gpu/"],
    # On a GPU, by its driver: times of the modules that tests are about.
    "tools/gpu-runner/": WITHOUT_TORCH + ["tools/", "backends/gpu/", "tests/backends/hlo_cases.h"],
    "tests/": WITHOUT_TORCH + ["tools/"],
    # libtenon with the emulated GPU.
    "tests/lab_library/": WITHOUT_TORCH + ["tools/", "torch_plugin/libtenon/hlo_target.h"],
    "tests/gpu/": WITHOUT_TORCH + ["tools/", "tests/", "backends/gpu/"],
    "tests/gpu_driver/": WITHOUT_TORCH + ["tools/", "tests/", "backends/gpu/"],
    # The CPU's code generator is tested from inside.
    "tests/backends/": WITHOUT_TORCH + ["tools/", "tests/", "backends/cpu/"],
    "tests/plugin/cpp_caller.cc": ["torch_plugin/executor/tensor_function.h"],
}

# Foreign headers -> the folders that may include them.
FOREIGN = {
    "torch": (re.compile(r"(torch|ATen|c10|caffe2|pybind11)/|Python\.h$"),
              ("torch_plugin/executor/", "torch_plugin/device/",
               "tests/plugin/guarding_allocator.cc", "tests/plugin/cpp_caller.cc", "tests/plugin/cpp_graph.cc",
               "benchmarks/alloc_only.cc")),  # a peer: what a call costs that only allocates
    # ulp-sweep runs the math bodies alone, with no kernel around them; lab/gpu runs kernels for a GPU on the host.
    "LLVM": (re.compile(r"llvm(-c)?/"), ("backends/", "tests/backends/", "tests/gpu_emulator/", "tools/lab/gpu/", "tools/ulp-sweep/")),
}

# In backends the evaluator is a value that is given from outside, for folding constants, and never called.
EVALUATOR_CALL = re.compile(r"\bEvaluat\w*\(")

# Names of a framework's operators: torch_plugin maps them.
FRAMEWORK_NAME = re.compile(r'"(aten|prims)\b')
NEUTRAL = ("hlo/", "passes/", "backends/", "runtime/")

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
    if not may_include(owner, header):
        why = ": the evaluator is for tests and tools" if header.startswith("hlo/eval/") else ""
        return f'{owner} may not include "{header}"{why}'
    return None


def may_include(owner, header):
    granted = ARROWS[owner] + ([owner] if owner.endswith("/") else [])
    island = longest_match(header, ISLANDS)
    if island is not None:
        granted = [folder for folder in granted if folder.startswith(island)]
    return any(header.startswith(folder) for folder in granted)


def misuse(path, line):
    if path.startswith("backends/") and EVALUATOR_CALL.search(line.split("//")[0]):
        return "backends call the evaluator, which is for constant folding in passes only"
    if path.startswith(NEUTRAL) and FRAMEWORK_NAME.search(re.split(r"//|/\*", line)[0]):
        return "a name of the framework's operators below torch_plugin"
    return None


def violations(root):
    """All violations under root, as `file:line: message`."""
    root = pathlib.Path(root)
    found = []
    for path in source_files(root):
        text = (root / path).read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            message = problem(root, path, *match.groups()) if match else misuse(path, line)
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
