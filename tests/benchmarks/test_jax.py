"""Exported programs in jax.numpy against PyTorch, small graphs of the operators that rows use."""

import pytest
import rows
import torch
import torch.nn.functional as F
from torch import nn
from torch_tenon.testing import compare

pytest.importorskip("jax", reason="jax is not installed: the benchmarks' JAX peer is not tested")
import exported  # noqa: E402
import jax_step  # noqa: E402

f = lambda *shape: torch.randn(*shape)
attend = F.scaled_dot_product_attention
ids = lambda high, *shape: torch.randint(0, high, shape)


def _bag(table, ids, offsets):
    return F.embedding_bag(ids, table, offsets, mode="sum")


CASES = {
    "promotion": (lambda x, k: (x + k, k / 2, k * 2.5, x > k, (k + 1) // 2), f(4, 5), ids(9, 4, 5)),
    "integers": (lambda k: (k % 5, k // 3, torch.div(k, 4, rounding_mode="trunc"), (k & 6) | 1, ~k), ids(99, 20) - 50),
    "pointwise": (lambda x: (x.abs().sqrt().log1p(), x.tanh().exp(), F.gelu(x), F.gelu(x, approximate="tanh"), F.hardswish(x), F.silu(x),
                             x.clamp(max=0.3), x.clamp(min=-1), F.hardsigmoid(x), x.rsqrt().isnan(), x**2), f(50)),
    "alpha": (lambda x, y: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=3), torch.rsub(x, y)), f(6), f(6)),
    "movement": (lambda x: (x.permute(2, 0, 1), x[:, 1:, ::2], x[..., -1], x.unsqueeze(1).expand(-1, 3, -1, -1), x.flip(1),
                            x.flatten(1), x.unbind(0)[1], x.chunk(2, -1)[1], torch.cat([x, x], 1), torch.stack([x, x]),
                            F.pad(x, (1, 2, 0, 3), value=2.0), x.repeat(2, 1, 1), x.transpose(0, 2).reshape(-1)), f(2, 3, 4)),
    "reductions": (lambda x: (x.sum(1), x.mean((0, 2), keepdim=True), x.var(1), x.std(), x.amax(-1), x.max(1), x.argmax(), x.argmin(1),
                              x.cumsum(1), (x > 0).any(1), (x > 0).all(), torch.var_mean(x, 2, correction=0)), f(3, 7, 5)),
    "halves": (lambda x: (x.sum(), x.softmax(-1), F.layer_norm(x, (64,)), x @ x.t(), F.silu(x)), f(64, 64).bfloat16()),
    "contractions": (lambda a, b, c: (a @ b, torch.addmm(c, a, b, beta=0.5, alpha=2.0), torch.baddbmm(c[None], a[None], b[None])),
                     f(4, 6), f(6, 3), f(4, 3)),
    "norms": (lambda x: (F.softmax(x, 1), F.log_softmax(x, 1), F.group_norm(x, 2), F.layer_norm(x, (5, 6), torch.full((5, 6), 2.0))),
              f(3, 4, 5, 6)),
    "pools": (lambda x: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
                         F.adaptive_avg_pool2d(x, 1), F.max_pool2d(x, 2, ceil_mode=True)), f(2, 3, 9, 8)),
    "resampling": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), f(1, 2, 5, 6)),
    "attention": (lambda q, k, v, m: (attend(q, k, v), attend(q, k, v, is_causal=True), attend(q, k, v, attn_mask=m),
                                      attend(q, k, v, scale=0.3)),
                  f(2, 3, 8, 4), f(2, 3, 8, 4), f(2, 3, 8, 4), (torch.rand(8, 8) > 0.3) | torch.eye(8, dtype=torch.bool)),
    "indexing": (lambda x, i, j: (x[i], x[i, j], x.index_select(1, j), x.gather(1, i[:, None] % 5), x.index_add(0, i, x[i] * 2),
                                  x.index_copy(0, torch.arange(3), x[:3] * 3),
                                  torch.zeros(7, 5).scatter_add(0, i[:, None].expand(-1, 5), x[:4])),
                 f(7, 5), ids(7, 4), ids(5, 4)),
    "scatter": (lambda x, i: (x.scatter(1, i, 2.0), x.scatter(0, i[:2], x * 2), x.index_put((i[:, 0],), x.sum(), accumulate=True)), f(4, 5),
                torch.tensor([[0], [2], [3], [1]])),
    "order": (lambda x: (torch.sort(x)[0], torch.sort(x, 0, descending=True), torch.argsort(x, stable=True), torch.topk(x, 3),
                         torch.topk(x, 2, largest=False)), f(4, 9)),
    "embedding": (lambda t, i: F.embedding(i, t).cumsum(1).argmax(-1), f(20, 6), ids(20, 3, 4)),
    "bags": (_bag, f(20, 6), ids(20, 12), torch.tensor([0, 4, 8])),
    "bags of several lengths": (_bag, f(20, 6), ids(20, 12), torch.tensor([0, 3, 10])),
    "bags of a table": (lambda t, i: F.embedding_bag(i, t, mode="sum"), f(20, 6), ids(20, 3, 4)),
    "creation": (lambda x: (torch.arange(5) * x.sum(), torch.full((2, 2), 3.0), x.new_zeros(3), torch.ones_like(x), torch.zeros_like(x)),
                 f(4)),
}  # fmt: skip


def _row(function, args, mode="infer", **fields):
    return rows.Row("case", "", lambda: (function, args), mode, **fields)


def _by_jax(row):
    made = jax_step.JaxStep(row)
    made.first_call()
    return made


@pytest.mark.parametrize("name", CASES)
def test_functions(name):
    function, *args = CASES[name]
    wanted = function(*args)
    values = exported.unflatten(_by_jax(_row(function, tuple(args))).values(), wanted)
    compare(values, wanted, None, vacuous_ok=True, check_strides=False).raise_if_failed()


MODULES = {
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1, groups=2), nn.BatchNorm2d(8), nn.ReLU(),
                                           nn.Conv2d(8, 4, (3, 1), dilation=2)), (2, 4, 11, 12)),
    "transposed weights": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3, bias=False)), (5, 6)),
    "lstm cell": (lambda: nn.LSTMCell(6, 8), (5, 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    make, shape = MODULES[name]
    model, x = make().eval(), torch.randn(shape)
    with torch.no_grad():
        wanted = model(x)
    values = exported.unflatten(_by_jax(_row(model, (x,))).values(), wanted)
    compare(values, wanted, None, vacuous_ok=True, check_strides=False).raise_if_failed()


def _trained_by_torch(row, steps):
    import step

    made = step.Step(row)
    made.first_call()
    values = made.values()
    for _ in range(steps - 1):
        made.run()
    return values, made


@pytest.mark.parametrize("optimizer", [rows.adamw, rows.sgd, lambda p: torch.optim.Adam(p, lr=1e-2)])
def test_training_steps(optimizer):
    torch.manual_seed(3)
    # No bias before a batch norm: its gradient would be rounding alone, which Adam makes steps of.
    model = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    row = _row(model, (torch.randn(8, 2, 6, 6),), "train", optimizer=optimizer, loss=lambda out: F.cross_entropy(out, torch.arange(8) % 3))
    wanted, eager = _trained_by_torch(row, 4)
    made = _by_jax(row)
    torch.testing.assert_close(made.values(), wanted, rtol=1e-3, atol=1e-5)
    made.timed(3)
    parameters, buffers, _ = made.carried
    for name, parameter in eager.model.named_parameters():
        torch.testing.assert_close(jax_step.to_torch(parameters[f"target.{name}"]), parameter.detach(), rtol=1e-3, atol=1e-3)
    for name in ("1.running_mean", "1.running_var"):
        torch.testing.assert_close(jax_step.to_torch(buffers[f"target.{name}"]), eager.model.get_buffer(name), rtol=1e-3, atol=1e-3)


def test_an_optimizers_steps():
    model = nn.ParameterList(nn.Parameter(torch.randn(3)) for _ in range(12))  # twelve: "10" sorts before "2"
    grads = tuple(torch.randn(3) for _ in range(12))
    row = _row(model, grads, "optimizer", optimizer=lambda p: torch.optim.Adam(p, lr=0.1))
    wanted, _ = _trained_by_torch(row, 1)
    torch.testing.assert_close(_by_jax(row).values(), wanted)


def test_a_buffer_that_changes_is_carried():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x):
            self.count.add_(x)
            return self.count * 2

    made = _by_jax(_row(Counter(), (torch.ones(2),)))
    assert made.values()[0].tolist() == [2.0, 2.0]
    made.timed(2)
    assert jax_step.to_torch(made.carried["target.count"]).tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("function", "args", "named"),
    [
        (lambda x: torch.linalg.cholesky(x), (torch.eye(3),), "cholesky"),
        (lambda x: F.adaptive_avg_pool2d(x, 2), (torch.randn(1, 1, 5, 5),), "adaptive_avg_pool2d"),
        (lambda x: x.add_(1), (torch.ones(3),), "writes to"),
    ],
)
def test_what_has_no_row_in_the_table_is_named(function, args, named):
    with pytest.raises(exported.NotExpressible, match=named):
        _by_jax(_row(function, args))
