"""Shared by the plugin tests."""

import os

import torch
from torch_tenon.testing import check_model

# Another backend in tenon's place, to prove the harness: what only tenon can tell isn't asserted then.
STAND_IN = os.environ.get("TENON_TEST_BACKEND", "tenon") != "tenon"


def same_as_eager(function, *args, backend, train=False, **options):
    """Eager and `backend` agree by the accuracy rule: outputs, strides, mutations, gradients. tenon has
    compiled something for it; how that may run is asserted for the whole test (conftest.py)."""
    before = _compiled()
    report = check_model(
        function, args, backend=backend, train=train, baseline=None, vacuous_ok=True, **options
    )
    report.raise_if_failed()
    assert report.coverage == 1.0, str(report)
    assert STAND_IN or _compiled() > before, "nothing was compiled"
    return report


def _compiled() -> int:
    """How many graphs this process has given to tenon."""
    if STAND_IN:
        return 0
    from torch_tenon import registry

    return registry.count()


def same_gradients(model, compiled, x):
    """One training step of the module and of what was compiled of it: the gradients of x and of all parameters, which are zeroed."""
    found = []
    for call in (model, compiled):
        call(x).square().sum().backward()
        found.append([x.grad, *(p.grad for p in model.parameters())])
        x.grad = None
        model.zero_grad()
    for wanted, got in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted)
