"""Random JAX programs: straight lines of operations over jax.lax, jax.numpy, jax.nn with random shapes and types.

make(seed) gives (function, inputs, description). A program starts from one to three random arrays and applies one to five
steps, each a row of STEPS that accepts a value at hand. Values stay moderate (abs(x), x / 4 and the like where a function
would blow up) so that a difference is an error and not an amplified rounding.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

FLOATS = ["float32", "float32", "float32", "float64", "bfloat16", "float16"]
INTS = ["int32", "int32", "int64", "int8", "int16", "uint8", "uint32"]
KINDS = {"f": FLOATS, "i": INTS, "b": ["bool"], "c": ["complex64", "complex128"]}


def kind(x):
    if jnp.issubdtype(x.dtype, jnp.bool_):
        return "b"
    if jnp.issubdtype(x.dtype, jnp.integer):
        return "i"
    return "c" if jnp.issubdtype(x.dtype, jnp.complexfloating) else "f"


@dataclasses.dataclass
class Step:
    name: str
    accepts: object  # (shape, dtype) -> bool, by an abstract value
    build: object  # (rng, x) -> function of x


STEPS = []


def step(kinds="fi", rank=0, nonempty=True, when=None):
    """The decorated (rng, x) -> function is a step for arrays of these kinds and at least this rank."""

    def accepts(x):
        return kind(x) in kinds and x.ndim >= rank and (x.size > 0 or not nonempty) and (when is None or when(x))

    def add(build):
        STEPS.append(Step(build.__name__, accepts, build))
        return build

    return add


def plain(kinds, functions, rank=0):
    """Steps that are one function without choices."""
    for name, function in functions.items():
        STEPS.append(Step(name, lambda x, k=kinds, r=rank: kind(x) in k and x.ndim >= r and x.size > 0,
                          lambda rng, x, f=function: f))


plain("f", {name: getattr(jnp, name) for name in (
    "sin cos tanh arctan arcsinh expm1 floor ceil rint trunc sign cbrt sinc isfinite isnan signbit "
    "nan_to_num square negative positive deg2rad rad2deg").split()})
plain("f", {
    "exp": lambda x: jnp.exp(x / 4), "sinh": lambda x: jnp.sinh(x / 4), "cosh": lambda x: jnp.cosh(x / 4),
    "tan": lambda x: jnp.tan(x / 8), "exp2": lambda x: jnp.exp2(x / 4),
    "log": lambda x: jnp.log(jnp.abs(x) + 1), "log1p": lambda x: jnp.log1p(jnp.abs(x)),
    "log2": lambda x: jnp.log2(jnp.abs(x) + 1), "log10": lambda x: jnp.log10(jnp.abs(x) + 1),
    "sqrt": lambda x: jnp.sqrt(jnp.abs(x) + 1), "rsqrt": lambda x: lax.rsqrt(jnp.abs(x) + 1),
    "arcsin": lambda x: jnp.arcsin(x / (jnp.abs(x) + 1)), "arccos": lambda x: jnp.arccos(x / (jnp.abs(x) + 1)),
    "arctanh": lambda x: jnp.arctanh(x / (jnp.abs(x) + 1.5)), "arccosh": lambda x: jnp.arccosh(jnp.abs(x) + 1.5),
    "reciprocal": lambda x: jnp.reciprocal(jnp.abs(x) + 1), "erf": lax.erf, "erfc": lax.erfc,
    "erf_inv": lambda x: lax.erf_inv(x / (jnp.abs(x) + 1)), "logistic": lax.logistic,
    "frexp": lambda x: jnp.frexp(x)[0], "ldexp": lambda x: jnp.ldexp(x, 3), "modf": lambda x: jnp.modf(x)[0],
    "is_finite": lax.is_finite, "round": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "reduce_precision": lambda x: lax.reduce_precision(x, 5, 6),
    "stop_gradient": lax.stop_gradient,
})
plain("f", {f"nn_{name}": getattr(jax.nn, name) for name in (
    "relu relu6 sigmoid softplus silu log_sigmoid leaky_relu hard_sigmoid hard_silu hard_tanh elu celu selu gelu "
    "soft_sign squareplus mish sparse_plus sparse_sigmoid").split()})
plain("f", {"nn_gelu_exact": lambda x: jax.nn.gelu(x, approximate=False)})
plain("f", {
    "softmax": jax.nn.softmax, "log_softmax": jax.nn.log_softmax, "logsumexp": jax.nn.logsumexp,
    "standardize": jax.nn.standardize, "log_mean_exp": lambda x: jax.nn.logsumexp(x, axis=-1) - float(np.log(x.shape[-1])),
}, rank=1)
plain("f", {"lgamma": lambda x: lax.lgamma(jnp.abs(x) + 1), "digamma": lambda x: lax.digamma(jnp.abs(x) + 1)})
plain("f", {"bessel_i1e": lax.bessel_i1e, "bessel_i0e": lax.bessel_i0e})
plain("fi", {"abs": jnp.abs, "count_nonzero": jnp.count_nonzero, "ravel": jnp.ravel, "flip": jnp.flip})
plain("i", {"bitwise_not": jnp.bitwise_not, "popcount": lax.population_count, "clz": lax.clz,
            "int_sign": jnp.sign, "int_negative": jnp.negative, "bit_count": jnp.bitwise_count})
plain("b", {"logical_not": jnp.logical_not, "any": jnp.any, "all": jnp.all, "bool_sum": jnp.sum,
            "nonzero": lambda x: jnp.nonzero(x, size=4, fill_value=-1)[0]}, rank=1)
plain("c", {"real": jnp.real, "imag": jnp.imag, "conj": jnp.conj, "angle": jnp.angle, "complex_abs": jnp.abs,
            "complex_exp": lambda x: jnp.exp(x / 4), "complex_sqrt": jnp.sqrt, "complex_tanh": lambda x: jnp.tanh(x / 4),
            "complex_log": lambda x: jnp.log(x + 4), "complex_sin": lambda x: jnp.sin(x / 4), "complex_mul": lambda x: x * x})


def other(rng, x):
    """A constant like x."""
    return jnp.asarray(values(rng, x.shape, x.dtype))


@step("fi")
def binary(rng, x):
    f = rng.choice([jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.fmax, jnp.fmin])
    y = other(rng, x)
    return lambda x: f(x, y)


@step("f")
def float_binary(rng, x):
    f = rng.choice([lambda a, b: a / (jnp.abs(b) + 1), lambda a, b: jnp.arctan2(a, jnp.abs(b) + 1), jnp.hypot,
                    jnp.logaddexp, jnp.copysign, lambda a, b: (jnp.abs(a) + 0.5) ** (b / 4), lax.nextafter,
                    lambda a, b: jnp.heaviside(a, b)])
    y = other(rng, x)
    return lambda x: f(x, y)


@step("i")
def int_binary(rng, x):
    f = rng.choice([jnp.bitwise_and, jnp.bitwise_or, jnp.bitwise_xor, jnp.floor_divide, jnp.remainder, lax.rem, lax.div,
                    lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic, jnp.gcd, jnp.divmod])
    y = other(rng, x)
    y = jnp.where(y == 0, jnp.ones_like(y), y) if f in (jnp.floor_divide, jnp.remainder, lax.rem, lax.div, jnp.divmod) else jnp.abs(y)
    return lambda x: f(x, y)[0] if f is jnp.divmod else f(x, y)


@step("fi")
def compare(rng, x):
    f = rng.choice([jnp.equal, jnp.not_equal, jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal])
    y = other(rng, x)
    return lambda x: f(x, y)


@step("fi")
def where(rng, x):
    mask, y = jnp.asarray(rng.random(x.shape) < 0.5), other(rng, x)
    return lambda x: jnp.where(mask, x, y)


@step("fi")
def clip(rng, x):
    low = 0 if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else -1
    return lambda x: jnp.clip(x, low, 2)


@step("fi")
def astype(rng, x):
    to = rng.choice(["float32", "float64", "bfloat16", "int32", "int64"])
    return lambda x: jnp.clip(x, 0, 100).astype(to)


@step("fi", when=lambda x: x.dtype.itemsize in (2, 4))
def bitcast(rng, x):
    to = rng.choice(["int8", "uint16"] if x.dtype.itemsize == 2 else ["int32", "uint8", "int16"])
    return lambda x: lax.bitcast_convert_type(x, to)


# ---- movement
@step("fibc", nonempty=False)
def reshape(rng, x):
    factors, rest = [], x.size
    for _ in range(rng.integers(0, 3)):
        divisors = [d for d in range(1, 8) if rest > 0 and rest % d == 0] or [1]
        factors.append(int(rng.choice(divisors)))
        rest //= factors[-1]
    return lambda x: jnp.reshape(x, (*factors, rest))


@step("fibc", rank=2)
def transpose(rng, x):
    order = tuple(int(i) for i in rng.permutation(x.ndim))
    return lambda x: jnp.transpose(x, order)


@step("fi", rank=1)
def roll(rng, x):
    shift, axis = int(rng.integers(-3, 4)), int(rng.integers(x.ndim))
    return lambda x: jnp.roll(x, shift, axis)


@step("fi", rank=1)
def strided_slice(rng, x):
    index = tuple(slice(int(rng.integers(0, n)), None, int(rng.choice([1, 2, -1]))) for n in x.shape)
    return lambda x: x[index]


@step("fi", rank=1)
def pad(rng, x):
    mode = str(rng.choice(["constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "mean", "maximum"]))
    if mode in ("linear_ramp", "mean") and kind(x) != "f":
        mode = "edge"
    widths = [(int(rng.integers(0, 3)) if n > 2 else 0, int(rng.integers(0, 2)) if n > 2 else 0) for n in x.shape]
    return lambda x: jnp.pad(x, widths, mode=mode)


@step("fi", rank=1)
def lax_pad(rng, x):
    config = [(int(rng.integers(-1, 3)), int(rng.integers(0, 3)), int(rng.integers(0, 2))) for _ in x.shape]
    return lambda x: lax.pad(x, x.dtype.type(1), config)


@step("fib", rank=1)
def concatenate(rng, x):
    y, axis = other(rng, x), int(rng.integers(x.ndim))
    f = rng.choice([jnp.concatenate, jnp.stack])
    return lambda x: f([x, y, x], axis=axis)


@step("fi", rank=1)
def tile_repeat(rng, x):
    axis = int(rng.integers(x.ndim))
    f = rng.choice([lambda x: jnp.tile(x, 2), lambda x: jnp.repeat(x, 3, axis=axis), lambda x: jnp.expand_dims(x, axis),
                    lambda x: jnp.broadcast_to(x, (2, *x.shape)), lambda x: jnp.swapaxes(x, 0, -1),
                    lambda x: jnp.array_split(x, 2, axis=axis)[0]])
    return f


@step("fi", rank=2)
def triangles(rng, x):
    k = int(rng.integers(-1, 2))
    f = rng.choice([jnp.tril, jnp.triu, jnp.diagonal, jnp.rot90, jnp.trace])
    return f if f in (jnp.diagonal, jnp.rot90, jnp.trace) else lambda x: f(x, k)


# ---- indexing
@step("fi", rank=1)
def take(rng, x):
    axis = int(rng.integers(x.ndim))
    index = jnp.asarray(rng.integers(-1, x.shape[axis], size=(2, 3)), dtype=rng.choice(["int32", "int64"]))
    mode = str(rng.choice(["clip", "fill", "wrap"]))
    return lambda x: jnp.take(x, index, axis=axis, mode=mode)


@step("fi", rank=1)
def fancy_index(rng, x):
    index = tuple(jnp.asarray(rng.integers(0, n, size=4)) for n in x.shape[: rng.integers(1, x.ndim + 1)])
    return lambda x: x[index]


@step("fi", rank=1)
def take_along(rng, x):
    axis = int(rng.integers(x.ndim))
    index = jnp.asarray(rng.integers(0, x.shape[axis], size=x.shape))
    return lambda x: jnp.take_along_axis(x, index, axis)


@step("fi", rank=1)
def scatter(rng, x):
    index = jnp.asarray(rng.integers(0, x.shape[0], size=3))
    update = jnp.asarray(values(rng, (3, *x.shape[1:]), x.dtype))
    how = str(rng.choice(["set", "add", "max", "min", "multiply"]))
    if how == "set":
        index = jnp.asarray(rng.permutation(x.shape[0])[:3])
        update = update[: index.shape[0]]
    return lambda x: getattr(x.at[index], how)(update)


@step("fi", rank=1)
def dynamic_slices(rng, x):
    starts = [jnp.int32(rng.integers(-1, n + 1)) for n in x.shape]
    sizes = [int(rng.integers(1, n + 1)) for n in x.shape]
    update = jnp.asarray(values(rng, sizes, x.dtype))
    if rng.random() < 0.5:
        return lambda x: lax.dynamic_slice(x, starts, sizes)
    return lambda x: lax.dynamic_update_slice(x, update, starts)


@step("fi", rank=1)
def sorts(rng, x):
    axis = int(rng.integers(x.ndim))
    along_axis = [-1 if d == axis else 1 for d in range(x.ndim)]
    f = rng.choice([lambda x: jnp.sort(x, axis=axis), lambda x: jnp.argsort(x, axis=axis),
                    lambda x: lax.top_k(x, min(2, x.shape[-1]))[0], lambda x: lax.top_k(x, 1)[1],
                    lambda x: lax.sort_key_val(x, jnp.broadcast_to(jnp.arange(x.shape[axis]).reshape(along_axis), x.shape),
                                               dimension=axis)[1],
                    lambda x: jnp.unique(x, size=3, fill_value=0), lambda x: jnp.median(x),
                    lambda x: jnp.searchsorted(jnp.sort(x.ravel()), x.ravel()),
                    lambda x: jnp.partition(x, 0, axis=axis), lambda x: -jnp.sort(-x, axis=axis, descending=True)])
    return f


@step("i")
def one_hot(rng, x):
    return lambda x: jax.nn.one_hot(jnp.abs(x) % 4, 4)


@step("i", rank=1)
def histogram(rng, x):
    return lambda x: jnp.bincount(jnp.abs(x).ravel() % 5, length=5)


# ---- reductions
@step("fi", rank=1)
def reduce(rng, x):
    axes = tuple(int(i) for i in rng.permutation(x.ndim)[: rng.integers(1, x.ndim + 1)])
    f = rng.choice([jnp.sum, jnp.max, jnp.min, jnp.mean, jnp.any, jnp.all, jnp.var, jnp.std, jnp.ptp, jnp.nansum, jnp.average])
    keep = bool(rng.integers(2))
    return lambda x: f(x / 4 if kind(x) == "f" else x, axis=axes, keepdims=keep)


@step("fi", rank=1)
def arg_reduce(rng, x):
    axis = int(rng.integers(x.ndim))
    f = rng.choice([jnp.argmax, jnp.argmin, lambda x, axis: jnp.prod(jnp.clip(x, 0, 1), axis=axis), jnp.nanmax])
    return lambda x: f(x, axis=axis)


@step("fi", rank=1)
def cumulative(rng, x):
    axis = int(rng.integers(x.ndim))
    f = rng.choice([lax.cumsum, lax.cummax, lax.cummin, lambda x, axis: lax.cumprod(jnp.clip(x, 0, 1), axis),
                    lambda x, axis: lax.cumsum(x, axis, reverse=True), lambda x, axis: jnp.diff(x, axis=axis),
                    lambda x, axis: lax.associative_scan(jnp.maximum, x, axis=axis)])
    return lambda x: f(x, axis)


@step("f", rank=1)
def cumlogsumexp(rng, x):
    return lambda x: lax.cumlogsumexp(x, 0)


@step("fi", rank=2)
def reduce_window(rng, x):
    window = [int(rng.integers(1, min(3, n) + 1)) for n in x.shape]
    strides = [int(rng.integers(1, 3)) for _ in x.shape]
    padding = str(rng.choice(["SAME", "VALID"]))
    if rng.random() < 0.5:
        return lambda x: lax.reduce_window(x, x.dtype.type(0), lax.add, window, strides, padding)
    low = -jnp.inf if kind(x) == "f" else jnp.iinfo(x.dtype).min
    return lambda x: lax.reduce_window(x, np.asarray(low, x.dtype)[()], lax.max, window, strides, padding)


# ---- contractions
@step("fic", rank=1)
def matmul(rng, x):
    y = jnp.asarray(values(rng, (x.shape[-1], int(rng.integers(1, 5))), x.dtype))
    return lambda x: jnp.matmul(x, y)


@step("f", rank=2)
def dots(rng, x):
    y = other(rng, x)
    f = rng.choice([lambda x: jnp.einsum("...i,...i->...", x, y), lambda x: jnp.tensordot(x, y, axes=x.ndim),
                    lambda x: jnp.einsum("...ij,...kj->...ik", x, y), lambda x: jnp.vdot(x, y), lambda x: jnp.inner(x, x),
                    lambda x: jnp.outer(x[0], y[0]), lambda x: jnp.kron(x[:2], y[:1])])
    return f


@step("f", rank=1)
def convolution(rng, x):
    spatial = int(rng.integers(1, 3))
    sizes = [2, 4] + [int(rng.integers(4, 7)) for _ in range(spatial)]
    groups = int(rng.choice([1, 2]))
    kernel = jnp.asarray(values(rng, [4, 4 // groups] + [int(rng.integers(1, 4)) for _ in range(spatial)], x.dtype))
    options = {
        "window_strides": [int(rng.integers(1, 3)) for _ in range(spatial)],
        "padding": str(rng.choice(["SAME", "VALID"])),
        "rhs_dilation": [int(rng.integers(1, 3)) for _ in range(spatial)],
        "lhs_dilation": [int(rng.choice([1, 1, 2])) for _ in range(spatial)],
        "feature_group_count": groups,
    }
    if 2 in options["lhs_dilation"]:
        options["padding"] = [(1, 1)] * spatial
    return lambda x: lax.conv_general_dilated(jnp.resize(x, sizes), kernel, **options)


@step("f", rank=1, when=lambda x: x.dtype in (jnp.float32, jnp.float64))
def linalg(rng, x):
    f = rng.choice(["cholesky", "solve", "inv", "det", "qr", "triangular", "lu", "slogdet", "eigvalsh", "svdvals",
                    "pinv", "matrix_power"])

    def apply(x):
        a = jnp.resize(x, (4, 4))
        a = a / (1 + jnp.abs(a)) + 4 * jnp.eye(4, dtype=x.dtype)
        if f == "cholesky":
            return jnp.linalg.cholesky(a @ a.T)
        if f == "solve":
            return jnp.linalg.solve(a, a[:, :2])
        if f == "qr":
            return jnp.linalg.qr(a[:, :3])[1]
        if f == "triangular":
            return jax.scipy.linalg.solve_triangular(a, a[:, :2], lower=True, trans=1)
        if f == "lu":
            return jax.scipy.linalg.lu(a)[2]
        if f == "slogdet":
            return jnp.linalg.slogdet(a)[1]
        if f == "eigvalsh":
            return jnp.linalg.eigvalsh(a + a.T)
        if f == "matrix_power":
            return jnp.linalg.matrix_power(a / 4, 5)
        return getattr(jnp.linalg, f)(a)

    return apply


@step("fc", rank=1, when=lambda x: x.dtype not in (jnp.bfloat16, jnp.float16))
def fft(rng, x):
    if kind(x) == "c":
        return rng.choice([jnp.fft.fft, jnp.fft.ifft, jnp.fft.irfft, jnp.fft.fftshift])
    return rng.choice([jnp.fft.rfft, jnp.fft.fft, jnp.fft.ifft])


# ---- control
@step("fi")
def loops(rng, x):
    n = int(rng.integers(0, 5))
    double = lambda x: (x / 2 + 1).astype(x.dtype)  # noqa: E731
    return rng.choice([
        lambda x: lax.fori_loop(0, n, lambda i, y: double(y) + i.astype(y.dtype), x),
        lambda x: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, double(s[1])), (0, x))[1],
        lambda x: lax.scan(lambda c, i: (double(c), (c.sum(), i)), x, jnp.arange(3))[1][0],
        lambda x: lax.map(lambda y: double(y).sum(), jnp.atleast_1d(x)),
    ])


@step("fi")
def branches(rng, x):
    pick = int(rng.integers(-1, 4))
    return rng.choice([
        lambda x: lax.cond(x.sum() > 0, lambda y: y + y, lambda y: y * y, x),
        lambda x: lax.switch(jnp.int32(pick) + x.astype(jnp.int32).ravel()[0] * 0, [lambda y: y, lambda y: y + 1, jnp.abs], x),
        lambda x: lax.select_n(x > 0, x, x + x), lambda x: jnp.piecewise(x, [x < 0, x > 1], [0, 1, lambda y: y]),
    ])


@step("f")
def gradient(rng, x):
    f = rng.choice([jnp.tanh, jnp.sin, jax.nn.gelu, lambda x: jax.nn.softmax(x.ravel()) ** 2, lambda x: x * jnp.cumsum(x.ravel())[-1],
                    jax.nn.softplus, lambda x: jnp.sort(x.ravel()) ** 2, jax.nn.silu])
    return jax.grad(lambda x: f(x).sum())


@step("f", rank=1)
def batched(rng, x):
    f = rng.choice([jnp.sum, jnp.sort, jnp.cumsum, lambda y: jnp.outer(y.ravel(), y.ravel()), jnp.argmax])
    return jax.vmap(f) if f is not jnp.sort else jax.vmap(lambda y: jnp.sort(y.ravel()))


@step("fi")
def random_bits(rng, x):
    seed = int(rng.integers(1 << 30))
    shape = x.shape
    return rng.choice([
        lambda x: jax.random.uniform(jax.random.key(seed), shape) + x,
        lambda x: jax.random.bits(jax.random.key(seed), shape) + 0 * x.astype("uint32"),
        lambda x: jax.random.normal(jax.random.key(seed), shape) + x, lambda x: jax.random.randint(jax.random.key(seed), shape, 0, 9) + x,
        lambda x: jax.random.permutation(jax.random.key(seed), x) if x.ndim else x,
        lambda x: jax.random.bernoulli(jax.random.key(seed), 0.3, shape),
        lambda x: jax.random.fold_in(jax.random.PRNGKey(seed), 3) + x.ravel()[0].astype("uint32"),
        lambda x: jax.random.uniform(jax.random.key(seed, impl="rbg"), shape) * 0 + x,
    ])


@step("f", rank=2, when=lambda x: x.dtype in (jnp.float32, jnp.bfloat16))  # f64 is computed in f32, f16 XLA:CPU lacks
def attention(rng, x):
    def apply(x):
        q = jnp.resize(x, (1, 4, 2, 4))
        return jax.nn.dot_product_attention(q, q, q, is_causal=bool(seed % 2))

    seed = int(rng.integers(2))
    return apply


# ---- programs
def values(rng, shape, dtype):
    dtype = jnp.dtype(dtype)
    if dtype == jnp.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if jnp.issubdtype(dtype, jnp.integer):
        low = 0 if jnp.issubdtype(dtype, jnp.unsignedinteger) else -8
        return np.asarray(rng.integers(low, 9, size=shape)).astype(dtype)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    return np.asarray(rng.normal(size=shape)).astype(dtype)


def make(seed):
    """(function, inputs, names of the steps). Steps that JAX refuses for the value at hand are drawn again."""
    rng = np.random.default_rng(seed)
    inputs = []
    for _ in range(rng.integers(1, 4)):
        shape = tuple(int(n) for n in rng.integers(1, 7, size=rng.choice([0, 1, 2, 2, 3, 4])))
        if rng.random() < 0.03 and shape:
            shape = (*shape[:-1], 0)
        family = str(rng.choice(list("ffffiibc")))
        inputs.append(values(rng, shape, str(rng.choice(KINDS[family]))))
    chain, names = [], []
    metas = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs]
    for _ in range(rng.integers(1, 6)):
        source = len(metas) - 1 if rng.random() < 0.7 else int(rng.integers(len(metas)))
        for _ in range(50):
            drawn = STEPS[rng.integers(len(STEPS))]
            if not drawn.accepts(metas[source]):
                continue
            try:
                function = drawn.build(rng, metas[source])
                meta = jax.eval_shape(function, metas[source])
                if not hasattr(meta, "shape") or meta.size > 4096:
                    continue
            except (TypeError, ValueError, NotImplementedError, IndexError, ZeroDivisionError):
                continue
            chain.append((function, source))
            metas.append(meta)
            names.append(drawn.name)
            break

    def program(*arrays):
        at_hand = list(arrays)
        for function, source in chain:
            at_hand.append(function(at_hand[source]))
        return at_hand[len(arrays):]

    return program, inputs, names
