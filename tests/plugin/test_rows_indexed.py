"""Tables, concatenations, dynamic slices and paddings that row kernels read where they lie: kernels that ran, results by the rule."""

import pytest
import torch
import torch.nn.functional as F

from torch_tenon.testing import compare

CHECK = 1  # the kernel that looks whether indices are in range


def _normed(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def _embedding(table, index, weight, bias):
    return _normed(F.embedding(index, table), weight, bias)


def _embeddings(table, places, kinds, index, kind, weight, bias):
    at = torch.arange(index.shape[1])
    return _normed(F.embedding(index, table) + F.embedding(at, places)[None] + F.embedding(kind, kinds), weight, bias)


def _bags(table, index):
    return F.embedding(index, table).sum(1)


def _sinks(scores, sink):
    return torch.softmax(torch.cat([scores, sink.expand(scores.shape[0], 1)], -1), -1)[:, :-1]


def _cache(old, new, weight):
    x = torch.cat([old, new], 2)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def _padded(x):
    return F.pad(x, (3, 2)).amax(-1)


def _rolled(x):
    return torch.softmax(torch.roll(x, 3, -1), -1)


def _shifted(x):
    return torch.roll(x, (3, 3), (1, 2)) * 2


def _round(x):
    return F.pad(x, (2, 1, 3, 2), mode="circular")


def _added(target, index, rows, weights):
    return target.index_add(0, index, rows * weights[:, None])


T = torch.randn


def _index(high, *sizes):
    return torch.randint(0, high, sizes)


ROWS = {
    "embedding": (_embedding, lambda: (T(50, 40), _index(50, 3, 7), T(40), T(40)), 1 + CHECK),
    "embeddings": (
        _embeddings,
        lambda: (T(50, 40), T(20, 40), T(2, 40), _index(50, 3, 7), _index(2, 3, 7), T(40), T(40)),
        1 + 2 * CHECK,
    ),
    "bags": (_bags, lambda: (T(50, 40), _index(50, 3, 7)), 1 + CHECK),
    "sinks": (_sinks, lambda: (T(6, 70), T(6, 1)), 1),
    "cache": (_cache, lambda: (T(2, 3, 5, 40), T(2, 3, 1, 40), T(40)), 1),
    "padded": (_padded, lambda: (T(6, 70),), 1),
    "rolled": (_rolled, lambda: (T(6, 70),), 1),
    "shifted": (_shifted, lambda: (T(2, 9, 10, 24),), 1),
    "round": (_round, lambda: (T(2, 3, 9, 10),), 1),
    "added": (_added, lambda: (T(9, 40), _index(9, 20), T(20, 40), T(20)), 1 + CHECK),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_one_kernel(name, dtype, tenon):
    function, make, kernels = ROWS[name]
    torch.manual_seed(0)
    args = [a.to(dtype) if a.is_floating_point() else a for a in make()]
    torch._dynamo.reset()
    tenon.reset_stats()
    found = torch.compile(function, backend="tenon", dynamic=False, fullgraph=True)(*args)
    (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    wide = [a.double() if a.is_floating_point() else a for a in args]
    compare(found, function(*args), function(*wide)).raise_if_failed()
    widened = 3 * (name == "added" and dtype == torch.bfloat16)  # sums in f32: weights and target are widened, the result rounded
    assert graph["kernels"] == kernels + widened


@pytest.mark.parametrize("size, step", [(400, 160), (70, 70), (65, 1)])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_long_windows(size, step, dim, tenon):
    x = torch.randn([500 if d == dim else 3 for d in range(3)])

    def windows(x):
        return x.unfold(dim, size, step) * 2

    torch.testing.assert_close(torch.compile(windows, backend="tenon", fullgraph=True)(x), windows(x), rtol=0, atol=0)


@pytest.mark.parametrize("rows, steps", [(37, 100), (8, 16), (3, 50), (64, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32], ids=str)
def test_scans_of_many_rows(rows, steps, dtype, tenon):
    x = (10 * torch.randn(rows, steps)).to(dtype)

    def scans(x):
        return x.cumsum(1), *x.cummax(1), *x.cummin(1)

    for found, wanted in zip(torch.compile(scans, backend="tenon", fullgraph=True)(x), scans(x), strict=True):
        torch.testing.assert_close(found, wanted)
