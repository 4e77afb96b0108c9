"""Inputs that a graph changes are written where they lie: right whatever their memory has to do with each other."""

import pytest
import torch

from plugin.checking import same_as_eager


def _decay(parameters, gradients):
    for p, g in zip(parameters, gradients):
        p.copy_(p * 0.9 - g * 0.1)  # g may be p's memory, of which eager's in-place operators want nothing to do


def _flat(*bounds):
    base = torch.randn(64)
    return [base[low:high] for low, high in bounds]


def test_parameters_in_one_buffer(backend):
    same_as_eager(_decay, _flat((0, 20), (20, 50), (50, 64)), [torch.randn(20), torch.randn(30), torch.randn(14)], backend=backend)


def test_a_gradient_that_is_another_parameters_memory(backend):
    p, q = _flat((0, 20), (10, 30))
    same_as_eager(_decay, [p], [q], backend=backend)
    same_as_eager(_decay, [p, q], [torch.randn(20), torch.randn(20)], backend=backend)


@pytest.mark.by_aten(tier="eager_program", reason="shares memory")
def test_one_program_meets_inputs_apart_and_overlapping(backend):
    """Compiled for inputs apart; then they share memory."""
    compiled = torch.compile(_decay, backend=backend, dynamic=False)
    base = torch.randn(64)
    for low in (32, 10, 0, 32):
        mine, wanted = base.clone(), base.clone()
        compiled([mine[:20]], [mine[low : low + 20]])
        _decay([wanted[:20]], [wanted[low : low + 20]])
        torch.testing.assert_close(mine, wanted)


@pytest.mark.by_aten(tier="any")
@pytest.mark.parametrize("train", [False, True])
def test_what_is_read_after_a_write_shares_its_memory(backend, train, graphs_ran_natively):
    """Compiled for inputs apart; where they meet, what eager does: PyTorch's own backends keep to values."""
    from torch_tenon import aliasing

    def f(a, x, w):
        a.add_(x * 2)
        return (a.sum() + x.sum()) * w.sum()

    compiled = torch.compile(f, backend=backend, dynamic=False)
    for low, count in ((32, 0), (0, 1), (8, 2), (40, 2), (16, 2)):
        mine, wanted = torch.arange(64.0), torch.arange(64.0)
        w = torch.ones(3, requires_grad=train)
        found = compiled(mine[:16], mine[low : low + 16], w)
        torch.testing.assert_close(found, f(wanted[:16], wanted[low : low + 16], w))
        torch.testing.assert_close(mine, wanted)
        if train:
            found.backward()
            assert w.grad is not None
        by_eager = [r for r in graphs_ran_natively if r.reason == aliasing.REASON]
        assert sum(r.raw_stats()["calls"] for r in by_eager) == count


def test_slices_of_one_array_do_not_meet(backend):
    """Columns, whose ends cross."""
    def f(a, x):
        a.add_(x * 2)
        return a.sum() + x.sum()

    compiled = torch.compile(f, backend=backend, dynamic=False)
    for _ in range(2):
        mine, wanted = torch.arange(64.0).view(4, 16), torch.arange(64.0).view(4, 16)
        torch.testing.assert_close(compiled(mine[:, :8], mine[:, 8:]), f(wanted[:, :8], wanted[:, 8:]))
        torch.testing.assert_close(mine, wanted)


@pytest.mark.by_aten(tier="any")
def test_shared_memory_is_an_error_if_asked_for(backend):
    from torch_tenon.compiler import NotNative

    compiled = torch.compile(lambda a, x: a.add_(x), backend=backend, dynamic=False, options={"fallback": "error"})
    base = torch.randn(64)
    compiled(base[:16], base[32:48])
    with pytest.raises(NotNative, match="shares memory"):
        compiled(base[:16], base[8:24])


def test_the_old_value_is_returned_too(backend):
    def step(p, g):
        old = p.clone()
        p.sub_(g)
        return old, p * 2

    same_as_eager(step, torch.randn(9), torch.randn(9), backend=backend)


def test_two_inputs_change_places(backend):
    def swap(a, b):
        old = a.clone()
        a.copy_(b + 1)
        b.copy_(old)

    same_as_eager(swap, torch.randn(7), torch.randn(7), backend=backend)


def test_inputs_move_on_by_one(backend):
    """The first is written last: its old value lies nowhere else."""

    def shift(a, b, c, x):
        c.copy_(b)
        b.copy_(a)
        a.mul_(2).add_(x)
        return a + c

    same_as_eager(shift, torch.randn(7), torch.randn(7), torch.randn(7), torch.randn(7), backend=backend)


@pytest.mark.by_aten(tier="any")
def test_a_view_of_what_was_written_before_has_the_new_elements(tenon):
    """As where a graph is run operator by operator; a copy made before has the old ones."""
    from torch_tenon import _C

    def text(maker):
        return f"""graph "view" {{
  %a = input f32[2,3]{{3,1}}
  %b = input f32[3]{{1}}
  %x = input f32[2,3]{{3,1}}
  %v = aten.select.int(%a, 0, 0) -> f32[3]{{1}}
  %w = {maker}(%v) -> f32[3]{{1}}
  %c = aten.copy_.default(%a, %x, false) -> alias %a
  %d = aten.copy_.default(%b, %w, false) -> alias %b
  return (%d)
}}
"""

    for maker, tier, new in (("aten.alias.default", "eager_program", True), ("aten.clone.default", "native", False)):
        run = _C.compile(_C.Graph.parse(text(maker)), {}, [])
        assert run.summary()[0] == tier, run.summary()
        a, b, x = torch.zeros(2, 3), torch.full((3,), 7.0), torch.ones(2, 3)
        run([a, b, x])
        assert torch.equal(a, x) and torch.equal(b, torch.ones(3) if new else torch.zeros(3)), maker


@pytest.mark.by_aten(steps={"aten.diagonal.default"})
@pytest.mark.parametrize("copy", [torch.floor, torch.clone, lambda a: a * 1])
@pytest.mark.parametrize("written", [False, True])
def test_a_view_of_a_copy_is_not_the_inputs_memory(backend, copy, written):
    """Where HLO has the input itself for the copy, and the view is a framework step's: of symbolic sizes."""

    def f(a, b):
        d = copy(a).diagonal(0, 0, 2)
        if written:
            a.copy_(b)
        return d

    compiled = torch.compile(f, backend=backend, dynamic=True)
    for n in (5, 9):
        a, b = (torch.randint(-99, 99, (n, n, 17), dtype=torch.int32) for _ in range(2))
        wanted = a.diagonal(0, 0, 2).clone()
        found = compiled(a, b)
        a.zero_()
        assert torch.equal(found, wanted)


@pytest.mark.by_aten(steps={"aten.as_strided.default"})
def test_a_view_of_a_copy_is_written_to_another_input(backend):
    def f(a, b, x):
        d = a.clone().as_strided((a.shape[0],), (a.shape[1],), 3)
        a.copy_(x)
        b.copy_(d)

    compiled = torch.compile(f, backend=backend, dynamic=True)
    for n in (5, 9):
        a, x = (torch.randint(-99, 99, (n, 17), dtype=torch.int32) for _ in range(2))
        wanted, b = a.as_strided((n,), (17,), 3).clone(), torch.zeros(n, dtype=torch.int32)
        compiled(a, b, x)
        assert torch.equal(b, wanted) and torch.equal(a, x)


def test_an_update_of_nothing(backend):
    """What is written back is the input itself, since no element is taken; another input is written beside it."""

    def update(a, mask, b, x):
        b.add_(x)
        a[mask] = b
        return a * 2

    none = torch.zeros(7, dtype=torch.bool)
    same_as_eager(update, torch.randn(7), none, torch.randn(0), torch.randn(0), backend=backend)


def test_inputs_change_places_as_they_are(backend):
    def swap(a, b):
        old = a.clone()
        a.copy_(b)
        b.copy_(old)

    def rotate(a, b, c, d, e):
        first, fourth = a.clone(), d.clone()
        a.copy_(b)
        b.copy_(c[1:].flip(0))
        c[1:].copy_(first)
        d.copy_(e.t())
        e.copy_(fourth)

    same_as_eager(swap, torch.randn(7), torch.randn(7), backend=backend)
    same_as_eager(swap, torch.randn(0), torch.randn(0), backend=backend)
    same_as_eager(rotate, torch.randn(7), torch.randn(7), torch.randn(8), torch.randn(5, 5), torch.randn(5, 5).t(), backend=backend)
    compiled = torch.compile(swap, backend=backend, dynamic=True)
    for n in (5, 40_000, 3):
        a, b = torch.randn(n), torch.randn(n)
        wanted = b.clone(), a.clone()
        compiled(a, b)
        assert torch.equal(a, wanted[0]) and torch.equal(b, wanted[1])


def test_an_error_leaves_inputs_alone(backend):
    def step(p, index):
        p.sub_(p[index])

    compiled = torch.compile(step, backend=backend)
    p = torch.randn(5)
    before = p.clone()
    compiled(p, torch.tensor([0, 1, 2, 3, 4]))
    torch.testing.assert_close(p, torch.zeros(5))
    p.copy_(before)
    with pytest.raises(IndexError):
        compiled(p, torch.tensor([0, 1, 2, 3, 9]))
    assert torch.equal(p, before)


class _Cached(torch.nn.Module):
    """A token's key and value into a cache, and attention over it: what a static cache of a language model does."""

    def __init__(self, length, heads=2, size=8):
        super().__init__()
        self.project = torch.nn.Linear(heads * size, 3 * heads * size)
        self.register_buffer("keys", torch.zeros(1, heads, length, size))
        self.register_buffer("values", torch.zeros(1, heads, length, size))
        self.shape = (1, 1, 3, heads, size)

    def forward(self, x, position):
        q, k, v = self.project(x).view(self.shape).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        mask = torch.arange(self.keys.shape[2]) <= position
        return torch.nn.functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask[None])


def _allocated(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    return sum(max(0, e.nbytes()) for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]")


def test_a_cache_is_written_where_it_lies_before_attention_reads_it(backend):
    model, eager = _Cached(4096), _Cached(4096)
    eager.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        for place in range(4):
            x, position = torch.randn(1, 1, 16), torch.tensor([place])
            torch.testing.assert_close(compiled(x, position), eager(x, position))
            torch.testing.assert_close(model.keys, eager.keys)
            torch.testing.assert_close(model.values, eager.values)
        x, position = torch.randn(1, 1, 16), torch.tensor([4])
        assert _allocated(lambda: compiled(x, position)) < model.keys.nbytes // 2, "a copy of the cache was made"
        keys = model.keys.clone()
        with pytest.raises(IndexError):
            compiled(x, torch.tensor([4096]))
        assert torch.equal(model.keys, keys)


@pytest.mark.parametrize("views", [
    lambda y: (y, y.t()), lambda y: (y[:3], y[1:4]), lambda y: (y[:, :2], y[:, 1:3]), lambda y: (y[:5], y[3:]), lambda y: (y, y[:-2]),
], ids=["transposed", "rows", "columns", "halves", "a part"])  # fmt: skip
@pytest.mark.parametrize("dynamic", [True, None], ids=["dynamic", "automatic"])
@pytest.mark.by_aten(steps=("aten.as_strided.default", "aten.as_strided_scatter.default"))
def test_views_of_one_memory_and_dynamic_sizes(views, dynamic, backend):
    """AOTAutograd makes them of one base, by sizes that are inputs."""
    def step(a, b):
        a.mul_(2)
        return b + a.sum()

    compiled = torch.compile(step, backend=backend, dynamic=dynamic)
    for n in (8, 9, 10):
        found, wanted = (torch.arange(n * n).view(n, n).float() for _ in range(2))
        torch.testing.assert_close(compiled(*views(found)), step(*views(wanted)))
        assert torch.equal(found, wanted)


@pytest.mark.by_aten(tier="eager_program", reason="shares memory")
def test_the_same_tensors_with_other_strides(backend):
    """Apart in one call and on one another in the next, from the same first element to the same last one."""
    def f(a, b):
        a.add_(b)
        return b * 2

    compiled = torch.compile(f, backend=backend, dynamic=True)
    compiled(torch.randn(14)[::2], torch.randn(14)[::2])
    found, wanted = torch.arange(40.0), torch.arange(40.0)
    a, b = found[0:13:2], found[3:16:2]
    for size, stride in ((7, 2), (5, 3), (7, 2), (5, 3)):
        for at, view in ((0, a), (3, b)):
            view.as_strided_((size,), (stride,), at)
        result = compiled(a, b)
        assert torch.equal(result, f(*(wanted.as_strided((size,), (stride,), at) for at in (0, 3)))), (size, stride)
        assert torch.equal(found, wanted), (size, stride)
