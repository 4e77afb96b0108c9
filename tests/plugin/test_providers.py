"""Who computes dots, convolutions and attention: the same numbers by each provider, and what ran; layouts of stacks of convolutions."""

import math

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_tenon.testing import compare


def _run(tenon, function, args, **options):
    """The result of the compiled function and the names of its library steps."""
    torch._dynamo.reset()
    tenon.reset_stats()
    with torch.no_grad():
        result = torch.compile(function, backend="tenon", dynamic=False, fullgraph=True, options=options)(*args)
    (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    return result, set(graph["aten_steps"])


def _wide(tensors):
    return [t.double() if t.is_floating_point() else t for t in tensors]


CONVOLUTIONS = {
    "1d": lambda x, w, b: F.conv1d(x[:, :, 0], w[:, :, 0], b, stride=2, padding=1),
    "2d": lambda x, w, b: F.conv2d(x, w, b, padding=(1, 0)),
    "3d": lambda x, w, b: F.conv3d(x[..., None], w[..., None], b, padding=1),
    "groups": lambda x, w, b: F.conv2d(x, w[:, :2], b, groups=3),
    "depthwise": lambda x, w, b: F.conv2d(x, w[:6, :1], b[:6], groups=6, stride=2),
    "dilated": lambda x, w, b: F.conv2d(x, w, None, dilation=2, padding=2),
    "transposed": lambda x, w, b: F.conv_transpose2d(x, w.transpose(0, 1), b, stride=2, padding=1, output_padding=1),
    "one pixel": lambda x, w, b: F.conv2d(x, w[:, :, :1, :1], b),
    "without batch": lambda x, w, b: F.conv2d(x[0], w, b),
    "patches, larger than what becomes of them": lambda x, w, b: F.conv2d(x, w, b, stride=4),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_by_each_provider(name, dtype, tenon):
    function = CONVOLUTIONS[name]
    args = [torch.randn(2, 6, 9, 10, dtype=dtype), torch.randn(12, 6, 3, 3, dtype=dtype) / 7, torch.randn(12, dtype=dtype)]
    eager, reference = function(*args), function(*_wide(args))
    for provider, steps in {"": {"host.convolution"}, "generated": set()}.items():
        found, ran = _run(tenon, function, args, provider=provider)
        compare(found, eager, reference).raise_if_failed()
        assert ran == steps


# Sizes of x and of the kernel, the stride, padding and dilation of all dims, groups; of transposed ones the output padding.
GRADIENTS = {
    "1d": ((2, 6, 9), (12, 6, 3), 2, 1, 1, 1, None),
    "2d": ((2, 6, 9, 10), (12, 6, 3, 2), 1, 1, 1, 1, None),
    "3d": ((2, 4, 5, 6, 4), (8, 4, 3, 1, 2), 1, 1, 1, 1, None),
    "stride": ((2, 6, 12, 9), (12, 6, 3, 3), (2, 3), (1, 0), 1, 1, None),
    "dilated": ((2, 6, 12, 9), (12, 6, 3, 3), (1, 2), 2, (2, 1), 1, None),
    "groups": ((2, 6, 8, 9), (12, 2, 3, 3), 2, 1, 1, 3, None),
    "depthwise": ((2, 6, 9, 9), (6, 1, 3, 3), 1, 1, 1, 6, None),
    "depthwise, two each": ((2, 6, 9, 9), (12, 1, 3, 3), 2, 1, 1, 6, None),
    "one pixel": ((2, 6, 8, 9), (12, 6, 1, 1), 1, 0, 1, 1, None),
    "one pixel, strides": ((2, 6, 8, 9), (12, 6, 1, 1), (2, 3), 0, 1, 1, None),
    "one place": ((2, 6, 3, 3), (12, 6, 3, 3), 1, 0, 1, 1, None),
    "more padding than kernel": ((2, 6, 5, 5), (12, 6, 2, 2), 1, 2, 1, 1, None),
    "transposed": ((2, 6, 5, 4), (6, 4, 3, 3), 2, 1, 1, 1, 1),
    "transposed, groups": ((2, 6, 5, 4), (6, 4, 3, 2), (2, 1), 1, 1, 3, 0),
    "transposed, dilated": ((2, 6, 5, 4), (6, 4, 3, 3), 1, 1, (2, 3), 1, 1),
    "transposed, one kernel each": ((2, 6, 5, 4), (6, 1, 3, 3), 2, 0, 1, 6, 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_a_convolution_by_each_provider(name, dtype, tenon):
    sizes, kernel, stride, padding, dilation, groups, extra = GRADIENTS[name]
    spatial = len(sizes) - 2
    stride, padding, dilation, extra_each = ([v] * spatial if isinstance(v, int) else list(v or [0] * spatial)
                                             for v in (stride, padding, dilation, extra))
    x, w = torch.randn(sizes, dtype=dtype), torch.randn(kernel, dtype=dtype) / 5
    place = [stride, padding, dilation, extra is not None, extra_each, groups]
    grad = torch.randn_like(torch.ops.aten.convolution(x, w, None, *place))

    def function(grad, x, w):
        return torch.ops.aten.convolution_backward(grad, x, w, [grad.shape[1]], *place, [True, True, True])

    args = [grad, x, w]
    eager, reference = function(*args), function(*_wide(args))
    # Where windows have one place the kernel's gradient is as well a convolution by one pixel. Results that are padded by a stride or
    # more are those of no convolution of the library's: its windows would have one place more.
    both = {"host.convolution", "host.kernel_gradient"}
    library = {"one place": {"host.convolution"}, "transposed, dilated": set()}.get(name, both)
    for provider, steps in {"": library, "host.convolution": library, "generated": set()}.items():
        found, ran = _run(tenon, function, args, provider=provider)
        compare(found, eager, reference).raise_if_failed()
        assert ran == steps


def test_gradients_that_nobody_wants_are_not_computed(tenon):
    x, w = torch.randn(2, 6, 8, 9), torch.randn(12, 6, 3, 3)
    grad = torch.randn_like(F.conv2d(x, w))

    def gradients(*wanted):
        return lambda *args: [g for g in torch.ops.aten.convolution_backward(
            *args, [12], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, wanted)[wanted.index(True):][:1]]

    for wanted, steps in {(True, False, False): {"host.convolution"}, (False, True, False): {"host.kernel_gradient"},
                          (False, False, True): set()}.items():
        found, ran = _run(tenon, gradients(*wanted), [grad, x, w])
        eager = gradients(*wanted)(grad, x, w)
        assert len(eager) == 1 and ran == steps
        compare(found, eager, gradients(*wanted)(*_wide([grad, x, w]))).raise_if_failed()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_training_step_has_its_convolutions_gradients_by_the_library(memory_format, tenon):
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=4), nn.ReLU(), nn.ConvTranspose2d(8, 6, 3, groups=2)
    model = nn.Sequential(*layers)
    model = model.to(memory_format=memory_format)
    x = torch.randn(2, 3, 16, 16).to(memory_format=memory_format)
    twin = copy.deepcopy(model).double()
    eager = copy.deepcopy(model)
    tenon.reset_stats()
    compiled = torch.compile(model, backend="tenon", dynamic=False)
    for m, at in ((compiled, x), (eager, x), (twin, x.double())):
        m(at).square().sum().backward()
    compare([p.grad for p in model.parameters()], [p.grad for p in eager.parameters()], [p.grad for p in twin.parameters()],
            check_strides=True).raise_if_failed()
    steps = {step for g in tenon.stats()["graphs"] if g["calls"] > 0 for step in g["aten_steps"]}
    assert steps == {"host.convolution", "host.kernel_gradient"}


def test_sizes_of_images_that_are_symbols_are_the_librarys(tenon):
    """An HLO window's size is a number, and the kernel's gradient has the image's: the operator is a step, whole."""
    conv = nn.Conv2d(3, 8, 3, padding=1)
    compiled = torch.compile(conv, backend="tenon", dynamic=True)
    for side in (12, 17):
        x = torch.randn(2, 3, side, side + 3)
        conv.zero_grad()
        compiled(x).square().sum().backward()
        found = [p.grad.clone() for p in conv.parameters()]
        eager, wide = copy.deepcopy(conv), copy.deepcopy(conv).double()
        for m, at in ((eager, x), (wide, x.double())):
            m.zero_grad()
            m(at).square().sum().backward()
        compare(found, [p.grad for p in eager.parameters()], [p.grad for p in wide.parameters()]).raise_if_failed()


def test_a_transposed_convolution_in_groups(tenon):
    def function(x, w):
        return F.conv_transpose2d(x, w, groups=3).relu()

    args = [torch.randn(2, 6, 5, 5), torch.randn(6, 2, 3, 3)]
    for provider, steps in {"": {"host.convolution"}, "generated": set()}.items():
        found, ran = _run(tenon, function, args, provider=provider)
        compare(found, function(*args), function(*_wide(args))).raise_if_failed()
        assert ran == steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
def test_a_dot_by_each_provider(dtype, tenon):
    def function(x, w, b, y):
        return torch.baddbmm(y, x, w), F.linear(x[0], w[0].mT, b)

    args = [torch.randn(shape, dtype=dtype) for shape in ((2, 5, 7), (2, 7, 9), (9,), (2, 5, 9))]
    wide = [a.to(torch.complex128 if dtype.is_complex else torch.float64) for a in args]
    for provider, steps in {"": {"host.matmul"}, "host.matmul": {"host.matmul"}, "generated": set()}.items():
        found, ran = _run(tenon, function, args, provider=provider)
        compare(found, function(*args), function(*wide)).raise_if_failed()
        assert ran == steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_kernel_packs_a_view_of_weights(dtype, tenon, tmp_path):
    """Columns that are not one behind the other, from an element on: squares are read by the view's strides."""
    whole = torch.randn(150, 90, dtype=dtype)
    function = lambda x, w: F.linear(x, w[1::2, 5:85])
    args = [torch.randn(12, 80, dtype=dtype), whole]
    found, ran = _run(tenon, function, args, provider="generated", dump=str(tmp_path))
    compare(found, function(*args), function(*_wide(args))).raise_if_failed()
    (plans,) = tmp_path.glob("inference*.plans.txt")
    (plan,) = [line for line in plans.read_text().splitlines() if line.startswith("  contraction ")]
    assert " packed " in plan and ran == set()


def test_a_provider_that_there_is_not():
    with pytest.raises(Exception, match=r"provider.*host\.matmul"):
        torch.compile(lambda x: x @ x, backend="tenon", options={"provider": "host.magic"})(torch.randn(3, 3))


class _Residual(nn.Module):
    """Convolutions, norms, a pool, a residual connection, features joined, a head."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(16, 8, 1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8 * 16, 5)

    def forward(self, x):
        x = F.max_pool2d(self.norm(self.first(x)).relu(), 2)
        x = x + F.hardswish(self.second(x))
        x = self.third(torch.cat([x, F.pad(x, (1, 1, 1, 1))[:, :, 1:-1, 1:-1]], 1))
        return self.head(F.adaptive_avg_pool2d(x, 4).flatten(1)), x


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_stack_of_convolutions_keeps_its_strides(channels_last, dtype, tenon):
    """Inside the features lie side by side; outside all is as eager's."""
    model = _Residual().eval().to(dtype)
    x = torch.randn(2, 3, 32, 32, dtype=dtype)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        eager, reference = model(x), _Residual().eval().double()
        reference.load_state_dict(model.state_dict())
        want = reference(x.double())
    found, ran = _run(tenon, model, [x])
    # In f32 the convolutions are generated, as features lie side by side.
    assert ran == ({"host.matmul"} if dtype == torch.float32 else {"host.convolution", "host.matmul"})
    compare(found, eager, want, check_strides=True).raise_if_failed()
    as_given, _ = _run(tenon, model, [x], disable_passes=["layout-convolutions"])
    compare(as_given, eager, want, check_strides=True).raise_if_failed()
    by_library, ran = _run(tenon, model, [x], provider="host.convolution")
    assert ran == {"host.convolution", "host.matmul"}
    compare(by_library, eager, want, check_strides=True).raise_if_failed()


def test_the_layout_of_a_stack_is_told(tenon):
    with torch.no_grad():
        explanation = tenon.explain(_Residual().eval(), torch.randn(2, 3, 32, 32))
    remarks = [r for g in explanation.graphs for r in g["remarks"] if r["kind"] == "features-fastest"]
    assert remarks and remarks[0]["numbers"]["convolutions"] == remarks[0]["numbers"]["packed"] == 3
    providers = {r["reason"].split(";")[0] for g in explanation.graphs for r in g["remarks"] if r["kind"] == "provider"}
    assert providers == {"generated", "host.matmul"}


def test_training_keeps_its_layouts(tenon):
    """What is saved for the backward is a result: its strides are promised."""
    model, x = _Residual(), torch.randn(2, 3, 32, 32)
    twin = _Residual()
    twin.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend="tenon", dynamic=False)
    for m in (compiled, twin):
        out, features = m(x)
        (out.square().mean() + features.mean()).backward()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5)


# ---- attention: the library's, or its body by kernels of ours; forward and backward ------------------------------------------------

_MASKED = torch.zeros(5, 7)
_MASKED[1] = _MASKED[2, :3] = _MASKED[4, 6] = -math.inf  # of row 1 nothing is left
_KNOWN = _MASKED == 0
_ODD = torch.zeros(5, 7)
_ODD[1, 2], _ODD[2, 3], _ODD[3] = math.inf, math.nan, -1e30

# The call on (q, k, v), and the heads of queries, of keys, lengths of queries, of keys
ATTENTION = {
    "plain": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (3, 3, 5, 7)),
    "scaled": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), (3, 3, 5, 7)),
    "causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (3, 3, 6, 6)),
    "causal, few queries": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (3, 3, 3, 9)),
    "causal, many queries": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (3, 3, 9, 4)),
    "mask": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=_MASKED.to(q.dtype)), (3, 3, 5, 7)),
    "mask of bools": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=_KNOWN), (3, 3, 5, 7)),
    "mask of a column": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=_MASKED[:, 3:4].to(q.dtype)), (3, 3, 5, 7)),
    "mask of each batch": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.stack([_MASKED, -_MASKED.exp()])[:, None].to(q.dtype)),
        (3, 3, 5, 7)),
    "shared keys": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), (6, 2, 5, 7)),
    "one query": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (3, 3, 1, 20)),
}
ATTENTION_STEPS = {"": {"host.attention", "host.attention_backward"}, "host.attention": {"host.attention", "host.attention_backward"},
                   "generated": set()}


def _attended(function, args, of=(0, 1, 2)):
    """The result and the gradients of these arguments, of a loss that weighs all elements otherwise."""
    args = [a.detach().requires_grad_() for a in args]
    out = function(*args)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape).to(out.dtype)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), [args[i] for i in of])]


def _qkv(dtype, heads, shared, queries, keys, features=8):
    """The queries lie as a projection gives them, [batch, length, heads, features]."""
    q = torch.randn(2, queries, heads, features, dtype=dtype).transpose(1, 2)
    return [q, *(torch.randn(2, shared, keys, features, dtype=dtype) for _ in range(2))]


def _steps(tenon):
    graphs = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    assert not any(g["by_aten"] for g in graphs)
    return {s for g in graphs for s in g["aten_steps"]}


@pytest.mark.parametrize("provider", ATTENTION_STEPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_by_each_provider(name, dtype, provider, tenon):
    function, sizes = ATTENTION[name]
    args = _qkv(dtype, *sizes)
    tenon.reset_stats()
    compiled = torch.compile(function, backend="tenon", dynamic=False, fullgraph=True, options={"provider": provider, "fallback": "error"})
    found = _attended(compiled, args)
    compare(found, _attended(function, args), _attended(function, _wide(args)), check_strides=True).raise_if_failed()
    assert _steps(tenon) == ATTENTION_STEPS[provider]


@pytest.mark.parametrize("provider", ATTENTION_STEPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_attention_by_a_mask_of_inf_and_nan(dtype, provider, tenon):
    """NaN in the rows where eager has it; the keys' gradients have it everywhere."""
    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=_ODD.to(q.dtype))

    args = _qkv(dtype, 3, 3, 5, 7)
    compiled = torch.compile(function, backend="tenon", dynamic=False, fullgraph=True, options={"provider": provider, "fallback": "error"})
    found, eager = _attended(compiled, args, of=[0]), _attended(function, args, of=[0])
    compare(found, eager, _attended(function, _wide(args), of=[0])).raise_if_failed()
    for tensor in found:
        assert tensor.isnan().all(-1).all(0).all(0).tolist() == [False, True, True, False, False]
        assert tensor.isfinite().all(-1).all(0).all(0).tolist() == [True, False, False, True, True]


@pytest.mark.parametrize("provider", ATTENTION_STEPS)
@pytest.mark.parametrize("name", ["plain", "causal", "shared keys"])
def test_attention_of_many_sizes(name, provider, tenon):
    function, (heads, shared, queries, keys) = ATTENTION[name]
    tenon.reset_stats()
    compiled = torch.compile(function, backend="tenon", dynamic=True, options={"provider": provider, "fallback": "error"})
    for more in (0, 3, 8, 40):
        args = _qkv(torch.float32, heads, shared, queries + more, keys + more)
        found = _attended(compiled, args)
        compare(found, _attended(function, args), _attended(function, _wide(args)), check_strides=True).raise_if_failed()
    assert _steps(tenon) == ATTENTION_STEPS[provider]


@pytest.mark.parametrize("provider", ["", "generated"])
def test_attention_of_frozen_weights(provider, tenon):
    layer = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x = torch.randn(2, 5, 16)

    def function(x):
        q, k, v = F.linear(x, layer.in_proj_weight, layer.in_proj_bias).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return layer.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    found, ran = _run(tenon, function, [x], provider=provider, freeze=True)
    with torch.no_grad():
        torch.testing.assert_close(found, function(x), rtol=1e-4, atol=1e-5)
    assert ("host.attention" in ran) == (provider == "")


@pytest.mark.parametrize("queries, keys", [(3, 0), (0, 4)])
def test_attention_to_nothing_is_no_librarys(queries, keys, tenon):
    """Eager's kernel divides by these lengths, which ends the process."""
    args = [torch.randn(1, 2, n, 8) for n in (queries, keys, keys)]
    found, ran = _run(tenon, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, args)
    assert [t.tolist() for t in found] == [torch.zeros(1, 2, queries, 8).tolist(), torch.zeros(1, 2, queries).tolist()]
    assert "host.attention" not in ran


def test_the_choice_of_attention_is_told(tenon):
    q, k, v = _qkv(torch.float32, 3, 3, 5, 7)
    kernels = "tenon.attention by its body; generated is asked for"
    for options, reason in (({}, "tenon.attention by host.attention"), ({"provider": "generated"}, kernels)):
        explanation = tenon.explain(ATTENTION["plain"][0], q, k, v, options=options)
        told = [r["reason"] for g in explanation.graphs for r in g["remarks"] if r["pass"] == "take-composites"]
        assert told == [reason]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 4, 5])
@pytest.mark.parametrize("side_by_side", ["terms", "columns"])
def test_few_rows_by_a_matrix(tenon, rows, dtype, side_by_side):
    """Sums along the matrix's rows, its columns, or tiles, by what the machine has: never the library's, and eager's numbers."""
    torch.manual_seed(rows)
    x, w, b = torch.randn(rows, 70, dtype=dtype), torch.randn(45, 70, dtype=dtype), torch.randn(45, dtype=dtype)
    w = w if side_by_side == "terms" else w.t().contiguous().t()

    def layer(x, w, b):
        return F.gelu(F.linear(x, w, b))

    found, ran = _run(tenon, layer, [x, w, b], provider="generated", fallback="error")
    assert not ran, "no library's, and no step of ATen's"
    compare(found, layer(x, w, b), layer(*_wide([x, w, b]))).raise_if_failed()
