"""Every optimizer of torch.optim as `torch.compile(optimizer.step)`: native, without a framework step, right over several steps."""

import pytest
import torch
from torch import nn

from torch_tenon.testing import compare

_SHAPES = ((7, 5), (5,), (), (3, 4, 2), (33,))
_STEPS = 4

_CASES = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adam_amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.01}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
    "adamw_maximize": (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True, "maximize": True}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01}),
    "rmsprop_centered": (torch.optim.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.9}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1}),
    "nadam": (torch.optim.NAdam, {"lr": 0.01}),
    "nadam_decoupled": (torch.optim.NAdam, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "radam": (torch.optim.RAdam, {"lr": 0.01}),
    "adadelta": (torch.optim.Adadelta, {}),
    "adamax": (torch.optim.Adamax, {"lr": 0.01}),
    "asgd": (torch.optim.ASGD, {"lr": 0.1}),
    "rprop": (torch.optim.Rprop, {"lr": 0.1}),
}


def _run(kind, options, steps, backend=None, dtype=torch.float32):
    """Parameters and state after `steps` steps along fixed gradients."""
    generator = torch.Generator().manual_seed(1)
    draw = lambda s: torch.randn(s, generator=generator).to(dtype)
    parameters = [nn.Parameter(draw(s)) for s in _SHAPES]
    optimizer = kind(parameters, **options)
    step = optimizer.step if backend is None else torch.compile(optimizer.step, backend=backend)
    for _ in range(steps):
        for p in parameters:
            p.grad = draw(p.shape)
        step()
    state = [v for p in parameters for v in optimizer.state[p].values() if isinstance(v, torch.Tensor)]
    return [t.detach().clone() for t in (*parameters, *state)]


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
@pytest.mark.parametrize("name", sorted(_CASES))
def test_steps(name, foreach, backend):
    kind, options = _CASES[name]
    options = options | {"foreach": foreach}
    torch._dynamo.reset()
    found = _run(kind, options, _STEPS, backend)
    eager, exact = _run(kind, options, _STEPS), _run(kind, options, _STEPS, dtype=torch.float64)
    report = compare(found, eager, exact, vacuous_ok=True)
    assert report.ok, str(report)


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
def test_small_parameters_share_a_launch(foreach, backend, graphs_ran_natively):
    shapes = [(64, 48), (48,)] * 25
    kept = []  # a graph that nobody keeps tells nothing of itself

    def run(backend=None, dtype=torch.float32):
        generator = torch.Generator().manual_seed(3)
        draw = lambda s: torch.randn(s, generator=generator).to(dtype)
        parameters = [nn.Parameter(draw(s)) for s in shapes]
        optimizer = torch.optim.Adam(parameters, lr=0.01, foreach=foreach)
        kept.append(optimizer.step if backend is None else torch.compile(optimizer.step, backend=backend))
        for _ in range(3):
            for p in parameters:
                p.grad = draw(p.shape)
            kept[-1]()
        return [p.detach() for p in parameters]

    torch._dynamo.reset()
    report = compare(run(backend), run(), run(dtype=torch.float64))
    assert report.ok, str(report)
    groups = [count for record in graphs_ran_natively for count in record.info["launch_groups"]]
    assert groups and max(groups) >= len(shapes) - 5, groups


def test_training_with_a_compiled_step(backend, graphs_ran_natively):
    """Forward, backward and step in one function, of which Dynamo makes several graphs."""

    def train(backend=None, dtype=torch.float32):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        x, y = torch.randn(5, 6).to(dtype), torch.randn(5, 3).to(dtype)

        def step():
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

        run = step if backend is None else torch.compile(step, backend=backend)
        for _ in range(3):
            run()
        return [p.detach() for p in model.parameters()]

    torch._dynamo.reset()
    report = compare(train(backend), train(), train(dtype=torch.float64))
    assert report.ok, str(report)
    assert len(graphs_ran_natively) >= 3, "forward, backward and step"
