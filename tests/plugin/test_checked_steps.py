"""What eager raises on data is raised by a graph that runs natively."""

import pytest
import torch

pytestmark = pytest.mark.by_aten(steps={"aten.linalg_inv_ex.default", "aten._linalg_check_errors.default"})


def _compiled(tenon, function, *args):
    torch._dynamo.reset()
    run = torch.compile(function, backend=tenon.backend.tenon)
    known = {graph["id"] for graph in tenon.stats()["graphs"]}
    result = run(*args)
    tiers = [graph["tier"] for graph in tenon.stats()["graphs"] if graph["id"] not in known]
    assert tiers == ["native"]
    return run, result


def test_a_singular_matrix_raises_eagers_error_and_leaves_the_graph_native(tenon):
    def inverse(x):
        return torch.linalg.inv(x) * 2 + 1

    x = torch.randn(3, 4, 4)
    run, result = _compiled(tenon, inverse, x)
    assert torch.equal(result, inverse(x))
    with pytest.raises(torch.linalg.LinAlgError, match="linalg.inv: .* singular"):
        run(torch.zeros(3, 4, 4))


def test_masked_scatter_with_too_few_elements_raises(tenon):
    mask = torch.tensor([True, False, True, False])
    run, result = _compiled(tenon, torch.Tensor.masked_scatter, torch.zeros(4), mask, torch.tensor([5.0, 7.0]))
    assert result.tolist() == [5, 0, 7, 0]
    with pytest.raises(RuntimeError, match="Number of elements of source < number of ones in mask"):
        run(torch.zeros(4), torch.ones(4, dtype=torch.bool), torch.tensor([5.0, 7.0]))


def test_a_masked_assignment_of_too_many_values_raises(tenon):
    def assign(x, mask, values):
        y = x * 2
        y[mask] = values
        return y

    x, mask = torch.ones(2, 3), torch.tensor([[True, False, True], [False, True, False]])
    run, result = _compiled(tenon, assign, x, mask, torch.tensor([5.0, 6.0, 7.0]))
    assert result.tolist() == [[5, 2, 6], [2, 7, 2]]
    with pytest.raises(RuntimeError, match="shape mismatch"):
        run(x, ~mask & mask, torch.tensor([5.0, 6.0, 7.0]))


def test_an_embedding_bag_of_an_unknown_row_raises(tenon):
    table, starts = torch.randn(5, 3), torch.tensor([0, 2])

    def bags(index):
        return torch.nn.functional.embedding_bag(index, table, starts)

    run, result = _compiled(tenon, bags, torch.tensor([0, 1, 4]))
    torch.testing.assert_close(result, bags(torch.tensor([0, 1, 4])))
    with pytest.raises(RuntimeError, match="index_size"):  # eager's words: the graph ran again by ATen
        run(torch.tensor([0, 1, 5]))
