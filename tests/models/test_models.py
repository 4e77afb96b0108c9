"""Real models through the backend: accuracy, capture, coverage, and who did the work.

A quick subset runs always, the rest under the marker `models`. tests/plugin/README.md says what
is expected of torch_tenon; TENON_TEST_BACKEND=aot_eager proves these tests without it.
"""

import copy

import torch

import pytest
from models import judging, zoo
from torch_tenon.testing import compare


def _params(names):
    return [
        pytest.param(name, marks=() if zoo.CASES[name].quick else pytest.mark.models)
        for name in names
    ]


TRAINED = [name for name, case in zoo.CASES.items() if case.loss is not None]
GRADIENTS = [name for name, case in zoo.CASES.items() if case.trains or case.loss is not None]


@pytest.fixture
def executor(backend, request):
    """torch_tenon where its counters can be asked, else None."""
    return request.getfixturevalue("tenon") if backend == "tenon" else None


def _show(capsys, name, verdict):
    with capsys.disabled():
        print(f"\n== {name}\n{verdict}", flush=True)


@pytest.mark.parametrize("name", _params(zoo.CASES))
def test_inference(name, backend, executor, capsys):
    verdict = judging.judge(zoo.CASES[name], backend, executor)
    _show(capsys, name, verdict)
    assert not verdict.problems, "\n".join(verdict.problems)


@pytest.mark.parametrize("name", _params(GRADIENTS))
def test_gradients(name, backend, executor, capsys):
    verdict = judging.judge(zoo.CASES[name], backend, executor, train=True)
    _show(capsys, f"{name}, training", verdict)
    assert not verdict.problems, "\n".join(verdict.problems)


# Batch norms of one small image: AdamW makes whole steps of gradients that are rounding errors, so that a loss of eager is four
# times as far from fp64 with one thread as with two. Several images say what one leaves to chance.
IMAGES = {name: 6 for name in ("shufflenet_v2", "googlenet", "mnasnet", "mobilenet_v2")}


def _train(case, steps, dtype, transform=lambda model: model, images=1):
    """Losses of a few AdamW steps from the same start, for each of `images` inputs."""
    model, args = case.make_train()
    model = model.to(dtype)
    start = copy.deepcopy(model.state_dict())
    callee = transform(model)
    noise = torch.Generator().manual_seed(0)
    losses = []
    for image in range(images):
        model.load_state_dict(start)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        inputs = [a + 0.1 * image * torch.randn(a.shape, generator=noise) if image > 0 else a for a in args]
        inputs = [a.to(dtype) if a.is_floating_point() else a for a in inputs]
        for _ in range(steps):
            optimizer.zero_grad()
            loss = case.loss(callee(*inputs))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses)


@pytest.mark.parametrize("name", _params(TRAINED))
def test_adamw_steps(name, backend):
    case, images = zoo.CASES[name], IMAGES.get(name, 1)
    candidate = _train(case, 3, torch.float32, lambda m: torch.compile(m, backend=backend), images)
    eager = _train(case, 3, torch.float32, images=images)
    reference = _train(case, 3, torch.float64, images=images)
    assert reference[2] < reference[0]
    compare(candidate, eager, reference).raise_if_failed()


def test_images_are_of_cases():
    assert IMAGES.keys() <= set(TRAINED)


# --- the criteria themselves fail when they should ------------------------------------------


def _graph(**changes):
    graph = {
        "id": 1, "tier": "native", "reason": "", "kind": "inference", "calls": 2, "run_ns": 10**6,
        "nodes": {"aten.addmm.default": 4, "aten.gelu.default": 2, "aten.view.default": 8},
        "aten_steps": {"aten.addmm.out": {"count": 8, "ns": 5 * 10**5, "reason": "library"}},
        "kernels": 2, "compile_ms": {"lower": 1.0}, "planned_bytes": 64,
    }  # fmt: skip
    return graph | changes


class _FakeTenon:
    def __init__(self, *graphs):
        self.graphs = list(graphs)

    def reset_stats(self):
        pass

    def stats(self):
        return {"graphs": self.graphs}


def _judge_with(*graphs, train=False):
    case = zoo.CASES["resnet_tiny"]
    return judging.judge(case, "aot_eager", _FakeTenon(*graphs), train).problems


def test_library_steps_are_allowed():
    assert _judge_with(_graph()) == []


def test_a_foreign_step_is_refused():
    steps = {"aten::gelu": {"count": 2, "ns": 10, "reason": "no lowering"}}
    assert "no lowering" in "".join(_judge_with(_graph(aten_steps=steps)))


def test_an_eager_program_is_refused():
    problems = _judge_with(_graph(tier="eager_program", reason="planted"))
    assert "planted" in "".join(problems)


def test_no_counted_run_is_refused():
    assert _judge_with() and _judge_with(_graph(calls=0))


def test_a_backward_by_aten_steps_is_refused():
    steps = {"aten.gelu.default": {"count": 4, "ns": 10, "reason": "no lowering"}}
    backward = _graph(kind="backward", aten_steps=steps)
    assert judging.native_share([backward]) == 0.0
    assert "0%" in "".join(_judge_with(_graph(), backward, train=True))
    assert judging.native_share([_graph(kind="backward")]) == 1.0
