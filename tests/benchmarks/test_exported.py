"""ONNX Runtime and OpenVINO on a small graph; skipped by name where they aren't installed."""

import exported
import pytest
import rows
import torch
from torch import nn
from torch_tenon.testing import compare

PEERS = {"onnxruntime": exported.OnnxRuntimeStep, "openvino": exported.OpenVinoStep}


@pytest.mark.parametrize("name", PEERS)
def test_a_module_with_two_outputs(name):
    for module in (name, "onnxscript") if name == "onnxruntime" else (name,):
        pytest.importorskip(module, reason=f"{module} is not installed: the benchmarks' peer {name} is not tested")

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 4)

        def forward(self, x, k):
            y = torch.tanh(self.linear(x))
            return y, y.argmax(-1) + k

    model, args = Two(), (torch.randn(5, 6), torch.arange(5))
    row = rows.Row("case", "", lambda: (model, args))
    with torch.no_grad():
        wanted = model(*args)
    made = PEERS[name](row)
    made.first_call()
    made.timed(2)
    assert set(made.phases(0.0)) == {"export", "compile", "run"}
    compare(exported.unflatten(made.values(), wanted), wanted, None, vacuous_ok=True, check_strides=False).raise_if_failed()


def test_a_flat_list_takes_eagers_structure():
    like = {"a": torch.zeros(1), "b": (torch.zeros(2), torch.zeros(3))}
    assert exported.unflatten([1, 2, 3], like) == {"a": 1, "b": (2, 3)}
    assert exported.unflatten([1, 2], like) == [1, 2]  # the judge says what is missing


def test_bfloat16_goes_through_its_bits():
    x = torch.randn(3, 4).bfloat16()
    assert torch.equal(exported.from_bits(exported.bits(x.t()), bfloat16=True), x.t())
