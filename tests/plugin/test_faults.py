"""A compiler that fails, by injection: the process lives, a repro is saved, the result is right."""

import pathlib
import threading

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.by_aten(tier="any")  # each test says which tier it wants

FAULTS = {  # fault -> what the reason says. A fatal error of LLVM costs a thread each: test_process.py
    "invalid-ir": "invalid LLVM IR",
    "llvm-error": "injected error",
    "unresolved-symbol": "tenon_injected_unlisted_symbol",
    "pass-crash": "injected crash in a pass",
}


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


@pytest.fixture
def counted(tenon):
    torch._dynamo.reset()
    tenon.reset_stats()
    known = {graph["id"] for graph in tenon.stats()["graphs"]}
    return lambda: [g for g in tenon.stats()["graphs"] if g["id"] not in known]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_compile(fault, counted, tmp_path):
    model, x = _model().eval(), torch.randn(8, 16)
    options = {"inject_fault": fault, "repro_dir": str(tmp_path)}
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="tenon", options=options)(x), model(x))
    (graph,) = counted()
    assert graph["tier"] == "eager_program" and FAULTS[fault] in graph["reason"], graph["reason"]
    repros = list(tmp_path.glob("*.aten"))
    assert len(repros) == 1 and FAULTS[fault] in repros[0].read_text().splitlines()[0]
    assert list(tmp_path.glob("*.hlo")), "a repro for hlo-run"


@pytest.mark.parametrize("fault", FAULTS)
def test_training_survives(fault, counted, tmp_path):
    model, twin, x = _model(), _model(), torch.randn(8, 16)
    options = {"inject_fault": fault, "repro_dir": str(tmp_path)}
    torch.compile(model, backend="tenon", options=options)(x).square().mean().backward()
    twin(x).square().mean().backward()
    for mine, wanted in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(mine.grad, wanted.grad)
    assert {graph["tier"] for graph in counted()} == {"eager_program"}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_compiler_still_works_after(fault, counted, tmp_path):
    def chain(t):
        return torch.softmax(torch.tanh(t) * 3, -1)

    x = torch.randn(5, 40)
    for injected in (fault, "", fault, ""):
        torch._dynamo.reset()
        options = {"inject_fault": injected, "repro_dir": str(tmp_path), "cache": False}
        found = torch.compile(chain, backend="tenon", options=options)(x)
        torch.testing.assert_close(found, chain(x))
    assert [g["tier"] for g in counted()] == ["eager_program", "native"] * 2


def test_failing_and_sound_compiles_in_threads(tenon, tmp_path):
    x, failures = torch.randn(7, 33), []
    trace = lambda factor: torch.fx.symbolic_trace(lambda t: [torch.ops.aten.mul.Tensor(t, factor)])
    graphs = [[trace(index + k) for k in range(4)] for index in range(8)]  # tracing is for one thread

    def work(index):
        fault = list(FAULTS)[index % len(FAULTS)] if index % 2 else ""
        options = {"inject_fault": fault, "repro_dir": str(tmp_path / str(index)), "cache": False}
        try:
            for k, graph in enumerate(graphs[index]):
                run = tenon.compile_graph(graph, [x], fallback="allow", options=options)
                torch.testing.assert_close(run([x])[0], x * (index + k))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_error_mode_names_the_failure(tenon, tmp_path):
    options = {"inject_fault": "llvm-error", "repro_dir": str(tmp_path), "fallback": "error"}
    torch._dynamo.reset()
    with pytest.raises(Exception, match="injected error"):
        torch.compile(torch.tanh, backend="tenon", options=options)(torch.randn(3))


# --- instruction sets -------------------------------------------------------------------------

_NOT_IN = {  # what the disassembly of a lower instruction set can't name
    "sse4": ("ymm", "zmm", "%k1", "vmov"),
    "avx2": ("zmm", "%k1", "{%k"),
}


@pytest.mark.parametrize("isa", _NOT_IN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_forced_instruction_set(isa, dtype, counted, tmp_path):
    def block(x, w, index):
        y = torch.nn.functional.layer_norm(x, (x.shape[-1],)) * w
        y = torch.nn.functional.gelu(y) + torch.softmax(x, -1)
        return y, y.sum(0), y.t().contiguous(), y[index], (y > 0).sum(-1), x.float().amax(0)

    torch.manual_seed(0)
    x, w = torch.randn(37, 65, dtype=dtype), torch.randn(65, dtype=dtype)
    index = torch.tensor([3, 36, 0])
    options = {"isa": isa, "fallback": "error", "dump": str(tmp_path)}
    found = torch.compile(block, backend="tenon", options=options)(x, w, index)
    close = {} if dtype == torch.float32 else {"rtol": 3e-2, "atol": 6e-2}
    for f, want in zip(found, block(x, w, index)):
        torch.testing.assert_close(f, want, **close)
    assembly = "\n".join(path.read_text() for path in pathlib.Path(tmp_path).glob("*.s"))
    assert "ret" in assembly
    for name in _NOT_IN[isa]:
        assert name not in assembly, f"{name} in code for {isa}"
