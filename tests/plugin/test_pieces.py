"""Scatters in pieces that threads share, and bags of one length: what ran, the same bits for any number of threads."""

import pytest
import torch
import torch.nn.functional as F

from torch_tenon.testing import compare


def _kernels(tenon, function, args, **options):
    torch._dynamo.reset()
    tenon.reset_stats()
    result = torch.compile(function, backend="tenon", dynamic=False, fullgraph=True, options=options)(*args)
    (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    return result, graph["kernels"]


@pytest.mark.parametrize("places, updates", [(1 << 16, 1 << 20), (100, 131_101), (7, 300_000)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_many_numbers_added_into_few_places(places, updates, dtype, tenon):
    def scatter(target, index, source):
        return target.scatter_add(0, index, source)

    args = (
        (10 * torch.randn(places)).to(dtype),
        torch.randint(0, places, (updates,)),
        (10 * torch.randn(updates)).to(dtype),
    )
    whole, without = _kernels(tenon, scatter, args, disable_passes=["split-scatters"])
    found, kernels = _kernels(tenon, scatter, args)
    assert kernels > without
    eager, wide = scatter(*args), torch.float64 if dtype.is_floating_point else dtype
    reference = scatter(args[0].to(wide), args[1], args[2].to(wide))
    for result in (whole, found):
        compare(result, eager, reference).raise_if_failed()
    threads = torch.get_num_threads()
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            assert torch.equal(_kernels(tenon, scatter, args)[0], found), n
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("index_type", [torch.int64, torch.int32], ids=str)
def test_bags_of_a_matrix_are_reductions(mode, padding, index_type, tenon):
    table = torch.randn(11, 8)
    index = torch.randint(0, 11, (5, 4)).to(index_type)
    index[3] = 2  # an empty bag, where that is the padding

    def bags(index, table):
        return F.embedding_bag(index, table, mode=mode, padding_idx=padding)

    found, _ = _kernels(tenon, bags, (index, table))
    compare(found, bags(index, table), bags(index, table.double())).raise_if_failed()
    starts = torch.arange(0, 20, 4).to(index_type)

    def scattered(index, table, starts):  # of any length, as far as a compiler knows
        return F.embedding_bag(index.flatten(), table, starts, mode=mode, padding_idx=padding)

    torch.testing.assert_close(found, _kernels(tenon, scattered, (index, table, starts))[0])


@pytest.mark.parametrize("freeze", [False, True])
def test_contractions_have_the_same_bits_for_any_number_of_threads(freeze, tenon):
    """Generated ones: what a machine leaves to MKL (AVX2 without 512 bits, its matrix products) has bits that hang on the threads."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 40, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(40, 40, 5, padding=2, groups=40), torch.nn.Conv2d(40, 72, 1),
        torch.nn.Flatten(2), torch.nn.Linear(23 * 29, 700), torch.nn.GELU(), torch.nn.Linear(700, 33),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 23, 29)
    threads = torch.get_num_threads()
    results = []
    with torch.no_grad():
        try:
            for n in (1, 2, 3):
                torch.set_num_threads(n)
                results.append(_kernels(tenon, net, (x,), freeze=freeze, provider="generated")[0])
        finally:
            torch.set_num_threads(threads)
        compare(results[0], net(x), net.double()(x.double())).raise_if_failed()
    assert all(torch.equal(results[0], r) for r in results)
