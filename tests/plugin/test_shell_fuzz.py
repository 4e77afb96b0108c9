"""Random programs of ATen operators through torch.compile (plugin/shell_fuzz.py), and that the judge sees what it should."""

import pytest
import torch

from plugin import shell_fuzz


def test_programs(backend):
    count, found = shell_fuzz.run(20261124, 40, backend)
    assert count == 40 and not found, "\n".join(found)


def test_programs_with_gradients(backend):
    count, found = shell_fuzz.run(20261125, 20, backend, train=True)
    assert count == 20 and not found, "\n".join(found)


def _swapped(run, inputs, state):
    outputs = run(inputs)
    for i, a in enumerate(outputs):
        for j, b in enumerate(outputs[:i]):
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and (a.shape, a.dtype) == (b.shape, b.dtype):
                outputs[i], outputs[j] = b, a
                return outputs
    return outputs


def _stale(run, inputs, state):
    outputs = run(inputs)
    state.setdefault("first", [t.clone() if isinstance(t, torch.Tensor) else t for t in outputs])
    return [a if isinstance(a, torch.Tensor) and a.shape == getattr(b, "shape", None) else b for a, b in zip(state["first"], outputs)]


def _lost_write(run, inputs, state):
    held = [t for t in inputs if isinstance(t, torch.Tensor)]
    before = [t.clone() for t in held]
    outputs = run(inputs)
    for t, old in zip(held, before):
        if 0 not in t.stride() or t.numel() < 2:
            t.copy_(old)
    return outputs


def _freed_input(run, inputs, state):
    held = [t for t in inputs if isinstance(t, torch.Tensor)]
    outputs = run(inputs)
    for t in held:
        t.zero_()
    return outputs


def _wrong_strides(run, inputs, state):
    return [t.contiguous() if isinstance(t, torch.Tensor) else t for t in run(inputs)]


def _lost_gradient(run, inputs, state):
    outputs = run(inputs)
    return [t * 1.001 if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in outputs]


@pytest.mark.by_aten(tier="any")
@pytest.mark.parametrize("change, kind", [
    (_swapped, "inference"), (_stale, "inference"), (_lost_write, "inference"), (_freed_input, "inference"), (_wrong_strides, "inference"),
    (_lost_gradient, "backward"),
], ids=["swapped outputs", "a stale result", "a lost write", "an input freed early", "wrong strides", "a wrong gradient"])  # fmt: skip
def test_a_planted_bug_is_found_and_cut(change, kind):
    from torch_tenon import backend
    from torch_tenon.options import Options

    options = Options.make(None, None)

    def compile_graph(graph, inputs, of):
        run, state = backend.compile_aten(graph, inputs, kind=of, options=options), {}
        if of != kind:
            return run

        def call(inputs):
            return change(run, list(inputs), state)

        call._boxed_call = True
        return call

    planted = backend.training_backend(compile_graph, own=False)
    for seed in range(60):
        program = shell_fuzz.draw(seed, train=kind == "backward")
        differs = lambda p: bool(shell_fuzz.difference(p, planted, train=kind == "backward"))
        if differs(program):
            break
    else:
        pytest.fail("not found in 60 programs")
    assert len(shell_fuzz.cut(program, differs).body) <= 3
