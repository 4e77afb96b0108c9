"""An output's memory holds intermediate results until its own value is written (ValueKind::kLent)."""

import re

import pytest
import torch
import torch_tenon
from torch import nn


class LanguageModel(nn.Module):
    """Narrow layers and a wide head, as a language model's."""

    def __init__(self, wide=4096):
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(64, 256) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(256, 64) for _ in range(3))
        self.head = nn.Linear(64, wide)

    def forward(self, x):
        for up, down in zip(self.up, self.down, strict=True):
            x = x + down(torch.nn.functional.gelu(up(x)))
        return self.head(x)


def program_of(folder):
    return next(folder.glob("*.program.txt")).read_text()


def graph():
    return torch_tenon.stats()["graphs"][-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_logits_lend_their_memory_to_the_layers(dtype, tmp_path):
    torch.manual_seed(0)
    model = LanguageModel().to(dtype)
    compiled = torch.compile(model, backend="tenon", dynamic=False, options={"dump": str(tmp_path)})
    kept = []
    with torch.no_grad():
        for k in range(3):
            x = torch.randn(32, 64, generator=torch.Generator().manual_seed(k)).to(dtype)
            kept.append((x, compiled(x)))
        exact = LanguageModel().double()
        exact.load_state_dict(model.state_dict())
        for x, logits in kept:  # the first call's too: its memory is nobody else's by now
            report = torch_tenon.testing.compare(logits, model(x), exact(x.double()))
            assert report.ok, report
    program = program_of(tmp_path)
    assert re.search(r"lent by output 0 \[\d+, \+\d+\)", program), program
    hidden = 32 * 256 * x.element_size()
    assert graph()["arena_bytes"] <= hidden, "of the arena what the logits are made of is left"


def test_sizes_of_the_call_lend_too(tmp_path):
    torch.manual_seed(0)
    model = LanguageModel()
    compiled = torch.compile(model, backend="tenon", dynamic=True, options={"dump": str(tmp_path)})
    kept = []
    with torch.no_grad():
        for rows in (32, 9, 32, 130, 2):
            x = torch.randn(rows, 64)
            kept.append((x, compiled(x)))
            assert graph()["arena_bytes"] <= rows * 256 * 4, rows
        for x, logits in kept:
            torch.testing.assert_close(logits, model(x))
    assert re.search(r"output 0 from \d+", program_of(tmp_path))


def test_what_is_read_when_the_output_is_written_is_not_lent(tmp_path):
    torch.manual_seed(0)
    first, second = nn.Linear(64, 256), nn.Linear(256, 256)

    def f(x):
        h = first(x)
        return second(h) * 2, h.sum(-1)

    x = torch.randn(32, 64)
    compiled = torch.compile(f, backend="tenon", dynamic=False, options={"dump": str(tmp_path)})
    with torch.no_grad():
        for got, want in zip(compiled(x), f(x), strict=True):
            torch.testing.assert_close(got, want)
    assert "lent by" not in program_of(tmp_path), "h is read when the only output that is as large is written"
    assert graph()["arena_bytes"] >= 32 * 256 * 4


def test_a_training_step_with_many_outputs(tmp_path):
    torch.manual_seed(0)
    model, other = LanguageModel(512), LanguageModel(512)
    other.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend="tenon", dynamic=False, options={"dump": str(tmp_path)})
    for k in range(3):
        x = torch.randn(32, 64, generator=torch.Generator().manual_seed(k))
        grads = []
        for m in (compiled, other):
            m.zero_grad()
            m(x).square().mean().backward()
            grads.append([p.grad for p in m.parameters()])
        for got, want in zip(*grads, strict=True):
            torch.testing.assert_close(got, want)
    assert any("lent by output" in text.read_text() for text in tmp_path.glob("*.program.txt"))
