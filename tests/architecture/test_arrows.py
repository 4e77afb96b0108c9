"""Includes point one way (DESIGN, arrows); the checker catches every kind of planted violation."""

import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _load_checker():
    spec = importlib.util.spec_from_file_location("check_arrows", ROOT / "tools/dev/check_arrows.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_arrows = _load_checker()

# A small project in which every arrow points the right way.
CLEAN = {
    "hlo/check.h": "",
    "hlo/dim/dim.h": '#include "hlo/check.h"\n',
    "hlo/module.h": "",
    "hlo/instruction.h": '#include "hlo/dim/dim.h"\n',
    "hlo/eval/evaluator.h": '#include "hlo/instruction.h"\n',
    "passes/pass.h": '#include "hlo/instruction.h"\n',
    "runtime/program/program.h": '#include "hlo/dim/dim.h"\n#include "hlo/library/call.h"\n#include "absl/status/status.h"\n',
    "runtime/program/binding.h": '#include "hlo/module.h"\n#include "runtime/program/program.h"\n',
    "backends/contract/target.h": '#include "passes/pass.h"\n',
    "backends/contract/kernel.h": '#include "passes/pass.h"\n',
    "backends/driver/targets.cc": '#include "backends/contract/target.h"\n#include "backends/cpu/cpu.h"\n',
    "backends/driver/compile.cc":
        '#include "backends/contract/target.h"\n#include "hlo/library/describe.h"\n'
        'context.evaluate = options.evaluate;  // Evaluate()\n',
    "hlo/library/call.h": '#include "hlo/check.h"\n',
    "hlo/library/describe.h": '#include "hlo/instruction.h"\n#include "hlo/library/call.h"\n',
    "backends/driver/compile.h": '#include "passes/pass.h"\n#include "runtime/program/program.h"\n',
    "backends/codegen/plan.h": '#include "backends/contract/kernel.h"\n',
    "backends/cpu/cpu.h": '#include "backends/contract/target.h"\n#include "backends/cpu/emit/kernel.h"\n',
    "backends/cpu/plan/plan.h": '#include "backends/codegen/plan.h"\n',
    "backends/cpu/emit/kernel.h":
        '#include "backends/codegen/plan.h"\n#include "backends/cpu/plan/plan.h"\n#include "llvm/IR/Module.h"\n',
    "backends/gpu/kernel.h": '#include <llvm/IR/Module.h>\n',
    "torch_plugin/aten/graph.h": '#include "hlo/dim/dim.h"\n#include "runtime/program/program.h"\n',
    "torch_plugin/executor/run.cc": '#include <torch/csrc/utils.h>\n#include <Python.h>\n',
    "tests/hlo/eval_test.cc": '#include "hlo/eval/evaluator.h"\n',
    "tests/backends/codegen_test.cc": '#include "backends/cpu/emit/kernel.h"\n',
    "tests/toy_target/toy.h": '#include "backends/contract/target.h"\n',
    "tools/hlo-run/main.cc": '#include "hlo/eval/evaluator.h"\n#include "backends/driver/compile.h"\n',
}

# (file, line added to it, what the checker must say)
PLANTED = [
    ("hlo/instruction.h", '#include "passes/pass.h"', 'hlo/ may not include "passes/pass.h"'),
    ("hlo/instruction.h", '#include "runtime/program/program.h"', "hlo/ may not include"),
    ("hlo/instruction.h", '#include "hlo/eval/evaluator.h"', "the evaluator is for tests and tools"),
    ("hlo/eval/evaluator.h", '#include "backends/driver/compile.h"', "hlo/eval/ may not include"),
    ("passes/pass.h", '#include "backends/driver/compile.h"', "passes/ may not include"),
    ("passes/pass.h", '#include "runtime/program/program.h"', "passes/ may not include"),
    ("passes/pass.h", '#include "hlo/eval/evaluator.h"', "the evaluator is for tests and tools"),
    ("passes/pass.h", "#include <llvm/IR/Module.h>", "LLVM header"),
    ("runtime/program/program.h", '#include "hlo/instruction.h"', "runtime/ may not include"),
    ("runtime/program/program.h", '#include "backends/driver/compile.h"', "runtime/ may not include"),
    ("runtime/program/program.h", '#  include "llvm-c/Core.h"', "LLVM header"),
    ("backends/driver/compile.h", '#include "torch_plugin/aten/graph.h"', "backends/ may not include"),
    ("backends/driver/compile.cc", "  return EvaluateModule(m);", "backends call the evaluator"),
    ("backends/driver/compile.cc", '  if (target == "aten.relu.default") return;', "a name of the framework's operators"),
    ("hlo/instruction.h", 'inline constexpr char kName[] = "prims.fma";', "a name of the framework's operators"),
    ("backends/driver/compile.cc", '#include "hlo/eval/evaluator.h"', "the evaluator is for tests and tools"),
    ("runtime/program/program.h", '#include "hlo/library/describe.h"', "runtime/ may not include"),
    ("hlo/library/call.h", '#include "runtime/program/program.h"', "hlo/library/ may not include"),
    ("hlo/library/call.h", '#include "hlo/eval/evaluator.h"', "the evaluator is for tests and tools"),
    ("backends/driver/compile.h", '#include "hlo/eval/evaluator.h"', "the evaluator is for tests and tools"),
    ("backends/cpu/emit/kernel.h", '#include "hlo/eval/evaluator.h"', "the evaluator is for"),
    ("backends/cpu/emit/kernel.h", '#include "backends/gpu/kernel.h"', "backends/cpu/ may not include"),
    ("backends/codegen/plan.h", '#include "backends/cpu/emit/kernel.h"', "backends/codegen/ may not"),
    ("backends/codegen/plan.h", '#include "backends/driver/compile.h"', "backends/codegen/ may not"),
    # Targets are values: the one place that knows which there are is their table.
    ("backends/driver/compile.cc", '#include "backends/cpu/cpu.h"', 'backends/ may not include "backends/cpu/cpu.h"'),
    ("backends/driver/compile.cc", '#include "backends/cpu/plan/plan.h"', "backends/ may not include"),
    ("backends/contract/target.h", '#include "backends/cpu/emit/kernel.h"', "backends/contract/ may not include"),
    ("backends/contract/target.h", '#include "backends/driver/compile.h"', "backends/contract/ may not include"),
    ("backends/codegen/plan.h", '#include "backends/cpu/plan/plan.h"', "backends/codegen/ may not include"),
    ("backends/codegen/plan.h", '#include "backends/contract/target.h"', "backends/codegen/ may not include"),
    ("backends/cpu/plan/plan.h", '#include "backends/cpu/emit/kernel.h"', "backends/cpu/plan/ may not include"),
    ("backends/cpu/emit/kernel.h", '#include "backends/driver/compile.h"', "backends/cpu/ may not include"),
    ("tests/toy_target/toy.h", '#include "backends/cpu/emit/kernel.h"', "tests/ may not include"),
    ("tools/hlo-run/main.cc", '#include "backends/cpu/plan/plan.h"', "tools/ may not include"),
    ("torch_plugin/aten/graph.h", '#include "passes/pass.h"', "torch_plugin/aten/ may not"),
    ("runtime/program/program.h", '#include "hlo/module.h"', "runtime/ may not include"),
    ("runtime/program/binding.h", '#include "hlo/instruction.h"', "runtime/program/binding. may not include"),
    ("tools/hlo-run/main.cc", "#include <llvm/IR/Module.h>", "LLVM header"),
    ("backends/cpu/emit/kernel.h", "#include <ATen/ATen.h>", "torch header"),
    ("torch_plugin/aten/graph.h", "#include <c10/core/ScalarType.h>", "torch header"),
    ("torch_plugin/aten/graph.h", '#include "backends/driver/compile.h"', "torch_plugin/aten/ may not"),
    ("torch_plugin/executor/run.cc", "#include <llvm/IR/Module.h>", "LLVM header"),
    ("torch_plugin/executor/run.cc", '#include "hlo/eval/evaluator.h"', "the evaluator is for"),
    ("tools/hlo-run/main.cc", "#include <torch/torch.h>", "torch header"),
    ("tests/hlo/eval_test.cc", '#include "torch/script.h"', "torch header"),
    ("passes/pass.h", '#include "absl/log/log.h"', "has no absl/log"),
    ("hlo/instruction.h", '#include "module.h"', "write includes from the project root"),
]


def write_tree(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_this_project():
    assert len(check_arrows.source_files(ROOT)) > 20
    assert check_arrows.violations(ROOT) == []


def test_clean_tree(tmp_path):
    write_tree(tmp_path, CLEAN)
    assert check_arrows.violations(tmp_path) == []


@pytest.mark.parametrize("path, line, message", PLANTED)
def test_planted_violation(tmp_path, path, line, message):
    write_tree(tmp_path, CLEAN | {path: CLEAN[path] + line + "\n"})
    found = check_arrows.violations(tmp_path)
    where = f"{path}:{CLEAN[path].count(chr(10)) + 1}: "
    assert len(found) == 1 and found[0].startswith(where) and message in found[0], found


def test_exit_status_and_text(tmp_path, capsys):
    write_tree(tmp_path, CLEAN)
    assert check_arrows.main([str(tmp_path)]) == 0
    write_tree(tmp_path, {"passes/bad.cc": '#include "backends/driver/compile.h"\n'})
    assert check_arrows.main([str(tmp_path)]) == 1
    assert 'passes/bad.cc:1: passes/ may not include "backends/driver/compile.h"' in capsys.readouterr().out
