"""Sizes that data decide: graphs in parts, each a program for all such sizes (docs/architecture/sizes.md)."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_tenon
from plugin import data_sizes_fuzz

pytestmark = [
    pytest.mark.usefixtures("tenon"),
    pytest.mark.skipif(torch.__version__ < "2.13", reason=f"torch {torch.__version__}: what Dynamo captures of such sizes is 2.13's"),
]


@pytest.fixture(autouse=True)
def captured():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


ONE = {"sizes": "one"}  # no programs for sizes that are hot, which a slow machine may find


def _parts(records):
    return [r.part.split(",")[0] for r in records]


def _check(f, records, calls, parts, **tolerance):
    """`f` is right in all calls, and so many parts of its graph are programs: none is compiled again for another size."""
    compiled = torch.compile(f, backend="tenon", options=ONE, fullgraph=True, dynamic=True)
    del records[:]
    for inputs in calls:
        torch.testing.assert_close(compiled(*inputs), f(*inputs), **tolerance)
    assert _parts(records) == [f"{k + 1} of {parts}" for k in range(parts)], [(r.part, r.sizes) for r in records]
    assert all(r.sizes == "" or r.sizes.startswith("all ") for r in records), [r.sizes for r in records]
    return records


TABLE = torch.randn(8, 16)


def _rows_of_data(x):
    return torch.relu(x[x[:, 0].nonzero().squeeze(1)] @ TABLE + 1).sum(1) * 2


def _up_to(x, n):
    m = n.sum().item()
    torch._check(m >= 0)
    torch._check(m <= x.shape[0])
    return (x[:m] * 2).exp().sum(1) + m


def _experts(x):
    """A mixture: rows that went to each expert, through it, and back."""
    chosen, out = (x @ TABLE[:, :3]).argmax(1), torch.zeros_like(x)
    for k in range(3):
        rows = (chosen == k).nonzero().squeeze(1)
        out = out.index_add(0, rows, torch.tanh(x[rows] @ TABLE[:, k : k + 8]))
    return out


def _both(x):
    """Two sizes in one part."""
    a, b = torch.masked_select(x, x > 0), torch.masked_select(x, x < 0)
    return a[:, None] * b[None, :] + a.sum()


def _made_of_a_size(x):
    m = (x > 0).sum().item()
    torch._check(m >= 0)
    return torch.zeros(m) + torch.arange(m) * 2, x.sum() + m


CASES = {
    "rows": (_rows_of_data, 2, {"aten.nonzero.default"}),
    "masked_select": (lambda x: torch.masked_select(x * 2, x > 0).exp() + 1, 2, {"aten.masked_select.default"}),
    "by_truth": (lambda x: x[x[:, 0] > 0].sin() + 1, 2, {"aten.index.Tensor"}),
    "unique": (lambda x: [v * 2 for v in (x > 0).long().sum(1).unique(return_inverse=True)], 2, {"aten._unique2.default"}),
    "repeat": (lambda x: torch.repeat_interleave(x, (x[:, 0] > 0) * 3, 0).cos() * 2, 2, {"aten.repeat_interleave.Tensor"}),
    "experts": (_experts, 4, {"aten.nonzero.default"}),
    "two": (_both, 2, {"aten.masked_select.default"}),
    "of_a_size": (_made_of_a_size, 2, set()),
    "returned": (lambda x: (x.nonzero(), x * 2), 1, {"aten.nonzero.default"}),
}


@pytest.mark.by_aten(steps={s for _, _, steps in CASES.values() for s in steps})
@pytest.mark.parametrize("name", CASES)
def test_parts(name, graphs_ran_natively):
    f, parts, steps = CASES[name]
    sizes = (30, 50, 7, 2)
    if parts == 1:  # nothing computes with what was found
        compiled = torch.compile(f, backend="tenon", options=ONE, fullgraph=True, dynamic=True)
        for n in sizes:
            x = torch.randn(n, 8).relu()
            torch.testing.assert_close(compiled(x), f(x))
        assert len(graphs_ran_natively) == 1
        return
    records = _check(f, graphs_ran_natively, [(torch.randn(n, 8).relu() - 0.1 * (n % 3),) for n in sizes], parts, rtol=1e-4, atol=1e-5)
    assert {s for r in records for s in r.stats()["aten_steps"] if not s.startswith("host.")} == steps
    assert all(r.kernels for r in records[1:]), "what follows is generated"


@pytest.mark.by_aten(steps={"aten.nonzero.default", "aten.masked_select.default"})
@pytest.mark.parametrize("f", (_rows_of_data, _both), ids=("rows", "two"))
def test_nothing_found_or_one(f, graphs_ran_natively):
    """Sizes of 0 and 1 are no other programs."""
    zeros, one = torch.zeros(30, 8), torch.zeros(30, 8)
    one[3, 0] = 2
    calls = [(torch.randn(30, 8),), (zeros,), (one,), (-one,)]
    _check(f, graphs_ran_natively, calls, 2, rtol=1e-4, atol=1e-5)


@pytest.mark.by_aten(steps={"aten.nonzero.default"})
def test_what_is_frozen_is_so_in_its_part():
    """Inputs of a part stand elsewhere than the graph's: a weight of the first part, and no other input, is the frozen one."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            y = torch.tanh(self.first(x))
            return self.second(y[(x[:, 0] > 0).nonzero().squeeze(1)]) * 2

    model = Model().eval()
    compiled = torch.compile(model, backend="tenon", options={"freeze": True}, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(30, 8)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_number_that_is_read(graphs_ran_natively):
    _check(_up_to, graphs_ran_natively, [(torch.randn(n, 8), torch.tensor([m, 0])) for n, m in ((30, 7), (50, 50), (9, 0), (9, 1))], 2)


def test_what_the_user_checks(graphs_ran_natively):
    compiled = torch.compile(_up_to, backend="tenon", options=ONE, fullgraph=True, dynamic=True)
    x = torch.randn(9, 8)
    torch.testing.assert_close(compiled(x, torch.tensor([4])), _up_to(x, torch.tensor([4])))
    for wrong in (-1, 10):
        with pytest.raises(RuntimeError, match="Runtime assertion failed"):
            compiled(x, torch.tensor([wrong]))
    torch.testing.assert_close(compiled(x, torch.tensor([9])), _up_to(x, torch.tensor([9])))


@pytest.mark.by_aten(steps={"aten.masked_select.default"})
def test_sizes_that_have_to_be_equal(graphs_ran_natively):
    def f(x, y):
        a, b = torch.masked_select(x, x > 0), torch.masked_select(y, y > 0)
        torch._check(a.shape[0] == b.shape[0])
        return a * b

    compiled = torch.compile(f, backend="tenon", options=ONE, fullgraph=True)
    x, y = torch.randn(40), torch.randn(40)
    torch.testing.assert_close(compiled(x, x + 0.0), f(x, x + 0.0))
    y[:] = 1
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        compiled(x, y)


@pytest.mark.by_aten(tier="any")
def test_real_and_true_numbers(graphs_ran_natively):
    """What no program takes among its inputs: the nodes that compute with it run from Python, what is around them natively."""

    def f(x):
        m = x.max().item()
        return torch.full((4,), m).sin() + x.sum() * 2

    compiled = torch.compile(f, backend="tenon", options=ONE, fullgraph=True)
    for _ in range(3):
        x = torch.randn(9, 8)
        torch.testing.assert_close(compiled(x), f(x))
    assert len(graphs_ran_natively) <= 3, "no program for each number"
    assert "native" in {r.tier for r in graphs_ran_natively}


@pytest.mark.by_aten(steps={"aten.index.Tensor"})
@pytest.mark.parametrize("written", (False, True), ids=("pure", "writes"))
def test_training(written, graphs_ran_natively):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 4)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            rows = x[x[:, 0] > 0]
            if written:
                self.seen += rows.shape[0]
            return F.gelu(self.linear(rows)).square().sum()

    model, eager = Model(), Model()
    eager.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend="tenon", options=ONE, fullgraph=True, dynamic=True)
    for n in (30, 50, 7):
        x = torch.randn(n, 8)
        x[0, 0] = 1
        gradients = []
        for m in (compiled, eager):
            given = x.clone().requires_grad_()
            m(given).backward()
            gradients.append(given.grad)
        torch.testing.assert_close(*gradients)
        torch.testing.assert_close(model.linear.weight.grad, eager.linear.weight.grad)
        torch.testing.assert_close(model.seen, eager.seen)
    assert sorted(r.kind for r in graphs_ran_natively) == ["backward", "forward", "forward"]


@pytest.mark.by_aten(steps={"aten.nonzero.default"})
def test_draws_keep_their_order(graphs_ran_natively):
    def f(x):
        a = torch.rand(3)
        rows = (x[:, 0] > 0).nonzero().squeeze(1)
        b = torch.rand(5)
        return a.sum() * x[rows] + torch.rand(8), b

    compiled = torch.compile(f, backend="tenon", options=ONE, fullgraph=True)
    x = torch.randn(20, 8)
    results = []
    for g in (compiled, f):
        torch.manual_seed(3)
        results.append(g(x))
    torch.testing.assert_close(*results)


def test_sizes_that_the_user_leaves_open(graphs_ran_natively):
    """mark_unbacked: one program, also for sizes of 0 and 1."""
    compiled = torch.compile(lambda x: torch.relu(x @ TABLE + 1).sum(1) * 2, backend="tenon", options=ONE, fullgraph=True)
    for n in (3, 5, 1, 0, 64):
        x = torch.randn(n, 8)
        torch._dynamo.decorators.mark_unbacked(x, 0)
        torch.testing.assert_close(compiled(x), torch.relu(x @ TABLE + 1).sum(1) * 2, rtol=1e-4, atol=1e-5)
    assert [(r.sizes, r.part) for r in graphs_ran_natively] == [("all u0", "")], "checks that always hold are no part"


def test_a_check_that_fails_comes_before_a_write(graphs_ran_natively):
    def f(x, n):
        m = n.sum().item()
        torch._check(m >= 3)
        x.add_(1)
        return x * 2

    compiled = torch.compile(f, backend="tenon", options=ONE, fullgraph=True)
    x = torch.zeros(4)
    torch.testing.assert_close(compiled(x, torch.tensor([3])), torch.full((4,), 2.0))
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        compiled(x, torch.tensor([2]))
    assert torch.equal(x, torch.ones(4))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[torch.zeros(3, dtype=torch.long)] + 1,
        lambda x: F.embedding(torch.zeros(3, dtype=torch.long), x) + 1,
        lambda x: x.gather(0, torch.zeros(2, 4, dtype=torch.long)) + 1,
        lambda x: torch.zeros(6, 4).masked_scatter(torch.arange(6)[:, None] < x.shape[0], x) + 1,
        lambda x: x.index_select(0, torch.zeros(2, dtype=torch.long)).sum(1),
    ],
    ids=("index", "embedding", "gather", "masked_scatter", "index_select"),
)
def test_nothing_to_take_from(f, graphs_ran_natively):
    """Rows of an empty table: eager's error, or eager's result where none is taken, and no read of what is not there."""
    compiled = torch.compile(f, backend="tenon", options=ONE, fullgraph=True)
    for n in (5, 0, 1, 0):
        x = torch.randn(n, 4)
        torch._dynamo.decorators.mark_unbacked(x, 0)
        try:
            want = f(x)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), want)
    assert [r.sizes for r in graphs_ran_natively if r.sizes.startswith("all")] == ["all u0"]


@pytest.mark.by_aten(steps={"aten.nonzero.default"})
def test_what_is_said_of_parts(graphs_ran_natively):
    text = str(torch_tenon.explain(_rows_of_data, torch.randn(30, 8)))
    assert "part 1 of 2, decides u0" in text and "part 2 of 2" in text and "all u0" in text


@pytest.mark.by_aten(tier="any")
@pytest.mark.filterwarnings("ignore:Error detected in")
def test_random_programs(graphs_ran_natively):
    """tests/plugin/data_sizes_fuzz.py."""
    for train in (False, True):
        ran, found = data_sizes_fuzz.run(20261127, 15, train)
        assert ran >= 11 and not found, "\n".join(found)
    assert all(r.tier == "native" and r.sizes[:3] in ("", "all") for r in graphs_ran_natively)


@pytest.mark.by_aten(tier="any")
def test_the_judge_of_random_programs_sees_a_wrong_number():
    ran, found = data_sizes_fuzz.run(7, 4, plant=True)
    assert ran == len(found) > 2


@pytest.mark.by_aten(tier="any")
def test_where_a_step_by_aten_is_refused():
    compiled = torch.compile(_rows_of_data, backend="tenon", options={"fallback": "error"})
    with pytest.raises(Exception, match="aten.nonzero.default"):
        compiled(torch.randn(30, 8))
