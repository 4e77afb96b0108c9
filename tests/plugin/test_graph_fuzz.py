"""Random ATen graphs through the C++ seam (plugin/graph_fuzz.py), and that the judge sees what it should."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

from plugin import graph_fuzz, graph_fuzz_judge, shell_fuzz
from plugin.graph_fuzz_ops import OVERLOADS

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_table_is_large():
    assert len(OVERLOADS) >= 180


def test_graphs(tenon):
    count, found = graph_fuzz.run(20261124, 250)
    assert count == 250 and not found, "\n".join(found)


@pytest.mark.parametrize("usual, right", [(5e-6, True), (1e-7, False), (1.0, False)], ids=["usual", "luck is usual", "another branch"])
def test_eager_is_as_exact_as_beside(usual, right):
    wide = torch.full((3,), 0.125, dtype=torch.float64)
    found, wanted = (wide + 5e-6).float(), wide.float()
    why = graph_fuzz_judge.unlike(found, wanted, wide, None, usual=lambda: [torch.full_like(wide, usual)] * 9)
    assert bool(why) != right, why


def test_graphs_with_symbols(tenon):
    count, found = graph_fuzz.run(20261125, 60, symbolic=True)
    assert count == 60 and not found, "\n".join(found)


def test_graphs_through_torch_compile(tenon):
    count, found = graph_fuzz.run(20261126, 25, judge=graph_fuzz.difference_compiled)
    assert count == 25 and not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("guard", ["1", "2"], ids=["ends", "begins"])
@pytest.mark.parametrize("kind", ["numbers", "symbols"])
def test_many_graphs_stay_inside_their_memory(tenon, guard, kind):
    command = [sys.executable, "-m", "plugin.graph_fuzz", "--seed", f"2026112{guard}", "--graphs", "3000" if kind == "numbers" else "600"]
    environment = {**os.environ, "TENON_GUARD": guard, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command += ["--symbols"] if kind == "symbols" else []
    ran = subprocess.run(command, cwd=ROOT / "tests", env=environment, capture_output=True, text=True, timeout=1800)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]


# Faults that a shell could have, between the fuzz and the executable: (run, inputs, state, program) -> outputs.


def _tensors(values):
    return [(k, t) for k, t in enumerate(values) if isinstance(t, torch.Tensor)]


def _alike(outputs, inputs):
    """Two outputs of one shape and dtype that are no inputs."""
    own = [(k, t) for k, t in _tensors(outputs) if t.numel() and not any(t is i for i in inputs)]
    return next(((a, b) for a, s in own for b, t in own if a < b and s is not t and (s.shape, s.dtype) == (t.shape, t.dtype)), None)


def _written_twice(run, inputs, state, program):
    outputs = run(list(inputs))
    if pair := _alike(outputs, inputs):
        outputs[pair[1]] = outputs[pair[0]].copy_(outputs[pair[1]])
    return outputs


def _stale_pointer(run, inputs, state, program):
    before = state.setdefault("inputs", [t.clone() if isinstance(t, torch.Tensor) else t for t in inputs])
    written = {k for k, i in enumerate(program.arguments) if i.id in program.written()}
    old = [b if k not in written and isinstance(b, torch.Tensor) and b.dtype.is_floating_point else t
           for k, (t, b) in enumerate(zip(inputs, before))]  # fmt: skip
    return run(old)


def _early_release(run, inputs, state, program):
    """What an earlier call returned is memory of this one."""
    outputs = run(list(inputs))
    for k, t in _tensors(outputs):
        old = state.get(k)
        if old is not None and old.shape == t.shape and not any(t is i for i in inputs):
            outputs[k] = old.copy_(t)
        elif t._base is None and not any(t is i for i in inputs):
            state[k] = t
    return outputs


def _commit_first(run, inputs, state, program):
    """Writes are done before everything is read."""
    run(list(inputs))
    again = [t.clone() if isinstance(t, torch.Tensor) else t for t in inputs]
    outputs = run(again)
    return [inputs[[t is a for a in again].index(True)] if any(t is a for a in again) else t for t in outputs]


def _missing_retain(run, inputs, state, program):
    """What is a view of an input loses its memory when nobody else has that."""
    held = [t for _, t in _tensors(inputs)]
    alone = [sys.getrefcount(t) <= 4 for t in held]
    outputs = run(list(inputs))
    for _, t in _tensors(outputs):
        if any(sole and t.untyped_storage().data_ptr() == i.untyped_storage().data_ptr() for sole, i in zip(alone, held)):
            t.untyped_storage().fill_(0x41)
    return outputs


def _lost_error(run, inputs, state, program):
    try:
        state["outputs"] = run(list(inputs))
    except (RuntimeError, IndexError):
        pass
    return state["outputs"]


def _swapped(run, inputs, state, program):
    outputs = run(list(inputs))
    if pair := _alike(outputs, inputs):
        outputs[pair[0]], outputs[pair[1]] = outputs[pair[1]], outputs[pair[0]]
    return outputs


def _counted_read(run, inputs, state, program):
    """An input counts as written that was only read."""
    outputs = run(list(inputs))
    for _, t in _tensors(inputs):
        torch.autograd.graph.increment_version(t)
    return outputs


def _lost_bit(run, inputs, state, program):
    """A lazy conjugate or negative is returned as what it is of."""
    bare = lambda t: t._conj() if t.is_conj() else t._neg_view() if t.is_neg() else t
    return [bare(t) if isinstance(t, torch.Tensor) else t for t in run(list(inputs))]


class _Shim:
    def __init__(self, executable, change, program):
        self.executable, self.change, self.program, self.state = executable, change, program, {}

    def __call__(self, inputs):
        return self.change(self.executable, inputs, self.state, self.program)

    def set_refused(self, target):
        if self.change is not _dropped_guard:
            return self.executable.set_refused(target)
        self.executable.set_refused(lambda inputs, why: [None] * len(self.program.outputs))  # and goes on


def _dropped_guard(run, inputs, state, program):
    return run(list(inputs))


@pytest.mark.by_aten(tier="any")
@pytest.mark.parametrize(
    "change, symbolic",
    [(_written_twice, False), (_stale_pointer, False), (_early_release, False), (_dropped_guard, True), (_commit_first, False),
     (_missing_retain, False), (_lost_error, False), (_swapped, False), (_counted_read, False), (_lost_bit, False)],
    ids=["an aliased output written twice", "a stale pointer", "early release", "a dropped guard", "wrong commit order", "a missing retain",
         "a lost error", "swapped outputs", "a version counter", "a lost bit"],
)  # fmt: skip
def test_a_planted_bug_is_found_and_cut(tenon, change, symbolic):
    def compiled_by(program, *how):
        compiled = graph_fuzz.Compiled(program, *how)
        compiled.executable = _Shim(compiled.executable, change, program)
        return compiled

    for number in range(400):
        program, _ = graph_fuzz.draw(number, symbolic)
        if what := graph_fuzz.wrong(program, compiled_by):
            break
    else:
        pytest.fail("not found in 400 graphs")
    small = graph_fuzz.cut(program, lambda p: graph_fuzz.kind_of(graph_fuzz.wrong(p, compiled_by)) == graph_fuzz.kind_of(what))
    assert len(small.body) <= 3, small
    assert not graph_fuzz.wrong(small), "without the bug there is no difference"


def _found_in_training(differs, train):
    for seed in range(80):
        program = shell_fuzz.draw(seed, train=train)
        if differs(program):
            return shell_fuzz.cut(program, differs)
    pytest.fail("not found in 80 programs")


@pytest.mark.by_aten(tier="any")
def test_a_planted_wrong_stride_of_a_saved_tensor_is_found_and_cut(tenon):
    """What a forward keeps for its backward lies otherwise than the backward was compiled for."""
    from torch_tenon import backend
    from torch_tenon.options import Options
    from torch_tenon.output_views import USER_OUTPUTS

    options = Options.make(None, None)

    def compile_graph(graph, inputs, of):
        run, users = backend.compile_aten(graph, inputs, kind=of, options=options), graph.meta.get(USER_OUTPUTS)
        if of != "forward":
            return run

        def call(inputs):
            outputs = run(list(inputs))
            for k in range(users or 0, len(outputs)):
                t = outputs[k]
                if isinstance(t, torch.Tensor) and t.dim() >= 2 and t.is_contiguous() and t.numel() > max(t.shape):
                    outputs[k] = t.as_strided(t.shape, t.permute(*reversed(range(t.dim()))).contiguous().permute(
                        *reversed(range(t.dim()))).stride())  # fmt: skip
            return outputs

        call._boxed_call = True
        return call

    planted = backend.training_backend(compile_graph, own=False)

    def differs(program):
        try:
            return bool(shell_fuzz.difference(program, planted, train=True))
        except RuntimeError:  # refused: it lies otherwise than the guard says
            return True

    program = _found_in_training(differs, True)
    assert len(program.body) <= 4, program
    assert not shell_fuzz.difference(program, "tenon", train=True)


@pytest.mark.by_aten(tier="any")
def test_a_planted_lost_count_of_a_write_is_found_and_cut(tenon, monkeypatch):
    bump = torch.autograd.graph.increment_version

    def differs(program, lost=True):
        monkeypatch.setattr(torch.autograd.graph, "increment_version", (lambda tensors: None) if lost else bump)
        return bool(shell_fuzz.difference(program, "tenon"))

    program = _found_in_training(differs, False)
    assert len(program.body) <= 3, program
    assert not differs(program, lost=False)
