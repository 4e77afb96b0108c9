"""Complex tensors: kernels of tenon, and the views that callers get of them. What isn't native is named: fft steps."""

import pytest
import torch
import torch.nn.functional as F

from plugin.checking import STAND_IN, same_as_eager
from torch_tenon.testing import compare


def _complex(*shape, dtype=torch.complex64, **options):
    return torch.randn(*shape, dtype=dtype, **options)


# --- models ----------------------------------------------------------------------------------


class RotaryAttention(torch.nn.Module):
    """Rotary embedding as in Llama's own code: queries and keys as complex numbers, turned by torch.polar."""

    def __init__(self, dim=32, heads=4, length=12):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
        width = dim // heads
        frequencies = 10000.0 ** (-torch.arange(0, width, 2) / width)
        self.register_buffer("angles", torch.outer(torch.arange(length), frequencies))

    def turned(self, x):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turn = torch.polar(torch.ones_like(self.angles), self.angles)
        return torch.view_as_real(pairs * turn).flatten(-2).type_as(x)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (self.turned(q) @ self.turned(k).transpose(-1, -2)).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("train", [False, True])
def test_rotary_embedding(backend, train):
    same_as_eager(RotaryAttention(), torch.randn(2, 12, 32, requires_grad=train), backend=backend, train=train)


class SpectralConvolution(torch.nn.Module):
    """A layer of a Fourier neural operator: the lowest modes times complex weights."""

    def __init__(self, channels=3, modes=4):
        super().__init__()
        self.modes = modes
        self.low, self.high = (torch.nn.Parameter(_complex(channels, channels, modes, modes)) for _ in range(2))
        self.local = torch.nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        waves, m = torch.fft.rfft2(x), self.modes
        product = lambda part, weight: torch.einsum("bixy,ioxy->boxy", part, weight)
        out = torch.zeros_like(waves)
        out[:, :, :m, :m] = product(waves[:, :, :m, :m], self.low)
        out[:, :, -m:, :m] = product(waves[:, :, -m:, :m], self.high)
        return F.gelu(torch.fft.irfft2(out, s=x.shape[-2:]) + self.local(x))


@pytest.mark.by_aten(steps={"aten._fft_r2c.default", "aten._fft_c2r.default", "aten._fft_c2c.default"})
@pytest.mark.parametrize("train", [False, True])
def test_spectral_convolution(backend, train):
    same_as_eager(SpectralConvolution(), torch.randn(2, 3, 16, 16, requires_grad=train), backend=backend, train=train)


# --- arithmetic -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_gradients_of_arithmetic(backend, dtype):
    def f(x, y):
        z = x * y.conj() + (2 - 1j) * x / (y + 3)
        return z.abs().sum() + (torch.exp(0.1j * z).imag ** 2).mean(), z.angle(), z.real.cumsum(0)

    x, y = (_complex(5, 7, dtype=dtype, requires_grad=True) for _ in range(2))
    same_as_eager(f, x, y, backend=backend, train=True)


def test_real_and_complex_operands(backend):
    def f(x, y, n):
        where = torch.where(y > 0, x, y + 1j)
        return where @ x.mH, torch.complex(y, y.flip(0)).sgn(), (x * n).sum(0), x.to(torch.float32), y.to(torch.complex128)

    torch.set_warn_always(True)  # else PyTorch says it once a process, and another test may have been first
    try:
        with pytest.warns(UserWarning, match="discards the imaginary part"):
            same_as_eager(f, _complex(4, 6), torch.randn(4, 6), torch.arange(6), backend=backend)
    finally:
        torch.set_warn_always(False)


@pytest.mark.by_aten(steps={"aten.var.correction"})
def test_what_has_no_lowering_is_a_step_of_that_name(backend):
    same_as_eager(lambda x: (x * 2j).var(0) + 1, _complex(4, 3), backend=backend)


# --- memory -----------------------------------------------------------------------------------


def test_written_through_views(backend):
    def local(x):
        y = x.clone()
        torch.view_as_real(y)[..., 0] += 1
        y.imag.mul_(2)
        return y

    def of_input(x):
        torch.view_as_real(x).mul_(3)
        x.real.add_(1)
        return x.sum()

    same_as_eager(local, _complex(3, 4), backend=backend)
    same_as_eager(of_input, _complex(3, 4), backend=backend)


def test_outputs_that_share_memory(backend):
    @torch.compile(backend=backend)
    def f(x):
        y = x * 2
        return y, torch.view_as_real(y), torch.view_as_real(x)

    x = _complex(3, 4)
    with torch.no_grad():
        y, parts, of_input = f(x)
        torch.testing.assert_close(parts, torch.view_as_real(x * 2))
        before = y._version
        parts.zero_()
        of_input.zero_()
        assert y._version == before + 1 or STAND_IN
    assert y.count_nonzero() == 0 and x.count_nonzero() == 0


def _views(y):
    """Of complex memory: bits, parts and windows of each other."""
    return (
        lambda: y.conj(), lambda: y.conj().imag, lambda: y.conj()[1:].t(), lambda: torch.view_as_real(y)[..., 1],
        lambda: y[:, 1], lambda: torch.view_as_real(y).view(torch.int32), lambda: y.conj().imag[1:] + 0, lambda: y,
    )  # fmt: skip


@pytest.mark.parametrize("of", ["computed", "input"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_any_kind(backend, of, dynamic):
    """Whatever a graph returns of one memory is what eager returns, bits, types, strides and sharing; written through, too."""
    for picked in ((0,), (1,), (3, 1), (4, 1), (0, 4, 5), (2, 7), (6, 0), (7, 3, 5, 1)):

        def f(x):
            y = x * 2 if of == "computed" else x
            return [_views(y)[k]() for k in picked] + [y.abs().sum()]

        compiled = torch.compile(f, backend=backend, dynamic=dynamic)
        for n in (3, 5):
            x = _complex(n, 4)
            mine = x.clone()
            with torch.no_grad():
                eager, found = f(x), compiled(mine)
                for _ in range(2):
                    for a, b in zip(found, eager):
                        torch.testing.assert_close(a, b)
                        assert a.stride() == b.stride() and a.dtype == b.dtype
                        assert STAND_IN or (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
                    found[0].mul_(3), eager[0].mul_(3)
            torch.testing.assert_close(mine, x)


def test_bits_of_a_trained_function(backend):
    def f(x):
        y = x * (2 + 1j)
        return y.conj(), y.conj().imag, x.conj(), y

    compiled = torch.compile(f, backend=backend)
    eager = _complex(3, 4).requires_grad_()
    mine = eager.detach().clone().requires_grad_()
    for run, x in ((f, eager), (compiled, mine)):
        a, b, c, d = run(x)
        assert a.is_conj() and b.is_neg() and c.is_conj() and not d.is_conj() or STAND_IN
        ((a * d).abs().sum() + (b * 3).sum() + (c * (1 + 2j)).real.sum()).backward()
    torch.testing.assert_close(mine.grad, eager.grad)


def test_windows_on_equal_readings_share_memory(backend):
    """Each part has a view_as_real of its own in the graph; so have the gradients of torch.complex's operands."""

    def f(x, y):
        z = torch.complex(x, y) * (1 + 2j)
        return z.real, z.imag

    def gradients(x, y):
        torch.complex(x, y).abs().sum().backward()

    compiled = torch.compile(f, backend=backend)
    with torch.no_grad():
        for function in (f, compiled):
            real, imaginary = function(torch.ones(3, 4), torch.ones(3, 4))
            before = imaginary._version
            real.add_(1)
            assert imaginary._version == before + 1 and (real == 0).all() and (imaginary == 3).all()
    eager = [torch.randn(3, 4, requires_grad=True) for _ in range(2)]
    found = [x.detach().clone().requires_grad_() for x in eager]
    gradients(*eager)
    torch.compile(gradients, backend=backend)(*found)
    for x, y in zip(found, eager):
        compare(x.grad, y.grad, None).raise_if_failed()


def test_an_output_keeps_its_bit(backend):
    @torch.compile(backend=backend)
    def f(x):
        y = x * 2
        return y.conj(), y.sum()

    x = _complex(3, 4)
    with torch.no_grad():
        found = f(x)
    assert found[0].is_conj() or STAND_IN
    torch.testing.assert_close(found[0], (x * 2).conj())


def test_inputs_with_bits_are_written(backend):
    """In their own memory, with one count of each write."""

    def f(x, y):
        y.add_(x.imag)
        x.mul_(2 + 1j)
        return x, x[1:].conj(), y.sum()

    compiled = torch.compile(f, backend=backend, dynamic=False)
    for window in (lambda t: t.conj(), lambda t: t[:, ::2].conj(), lambda t: t.t()[1:5].conj(), lambda t: t[:0].conj()):
        base = _complex(4, 6)
        mine = base.clone()
        y, my = (window(base).imag.clone()._neg_view() for _ in range(2))
        with torch.no_grad():
            x = window(mine)
            count = x._version
            found, eager = compiled(x, my), f(window(base), y)
            assert x._version == count + 1
        torch.testing.assert_close((list(found), mine, my), (list(eager), base, y))
        assert found[0] is x and (found[0].is_conj(), found[1].is_conj()) == (True, eager[1].is_conj())
        torch._dynamo.reset()


def test_inputs_with_bits(backend):
    """Whatever bit a tensor has and however its elements lie, what is read through it counts."""

    def f(x, y):
        return x * 2, (x + y).abs(), torch.view_as_real(x * 1j)

    compiled = torch.compile(f, backend=backend, dynamic=False)
    base = _complex(4, 6)
    for x in (base.conj(), base[:, ::2].conj(), base.t()[1:5].conj(), base[:1].expand(4, 6).conj(), base[:0].conj()):
        for y in (torch.tensor(2.0), base.conj().imag[0, 0], x.imag, torch.view_as_real(base.conj().imag + 1j)[0, 0, 0]):
            with torch.no_grad():
                found, eager = compiled(x, y), f(x, y)
            report = compare(found, eager, None, vacuous_ok=True)
            report.raise_if_failed()
            torch._dynamo.reset()
    assert base.conj().imag.is_neg() and base.conj().is_conj(), "the inputs have no bits"
