"""host.linear_packed, host.conv_packed: frozen contractions by the library, which keeps their weights and computes what is behind them."""

import contextlib
import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from models import zoo
from torch_tenon._check_model import check_model
from torch_tenon.testing import compare

LINEAR, CONVOLUTION = "host.linear_packed", "host.conv_packed"


@pytest.fixture(autouse=True)
def _nothing_yet(tenon):
    tenon.reset_stats()


def _compiled(model, **options):
    torch._dynamo.reset()
    options = {"freeze": True, "fallback": "error", **options}
    return torch.compile(model, backend="tenon", dynamic=False, fullgraph=True, options=options)


def _graph(tenon):
    (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    return graph


def _checked(model, x, tenon, **options):
    """What ran: the names of the library's steps, how many kernels. The second call's numbers are checked too."""
    fast = _compiled(model, **options)
    with torch.no_grad():
        eager, reference = model(x), copy.deepcopy(model).double()(x.double())
        for _ in range(2):
            compare(fast(x), eager, reference).raise_if_failed()
    graph = _graph(tenon)
    return set(graph["aten_steps"]), graph["kernels"]


class _Behind(nn.Module):
    """`behind` of a linear layer's result and x."""

    def __init__(self, behind, bias=True):
        super().__init__()
        self.linear, self.behind = nn.Linear(48, 48, bias=bias), behind

    def forward(self, x):
        return self.behind(self.linear(x), x)


# What the library computes with the product, and the kernels that are left where it doesn't.
EPILOGUES = {
    "nothing": (lambda y, x: y, 0),
    "gelu": (lambda y, x: F.gelu(y), 0),
    "gelu by tanh": (lambda y, x: F.gelu(y, approximate="tanh"), 0),
    "silu": (lambda y, x: F.silu(y), 0),
    "hardswish": (lambda y, x: F.hardswish(y), 0),
    "sigmoid": (lambda y, x: torch.sigmoid(y), 0),
    "tanh": (lambda y, x: torch.tanh(y), 0),
    "a residual": (lambda y, x: y + x, 0),
    "a residual, the other way round": (lambda y, x: x + y, 0),
    "relu": (lambda y, x: F.relu(y), 1),  # the library's makes 0 of a NaN
    "relu6": (lambda y, x: F.relu6(y), 1),
    "an activation of a residual": (lambda y, x: F.gelu(y + x), 1),
    "an activation and a residual": (lambda y, x: F.silu(y) + x, 1),
    "something else": (lambda y, x: y.sin(), 1),
    "twice read": (lambda y, x: F.gelu(y) + y, 1),
    "a vector that hangs on x": (lambda y, x: y * x[..., :1], 1),
}


@pytest.mark.parametrize("sizes", [(5,), (2, 3), (1,)], ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", EPILOGUES)
def test_what_is_behind_a_linear_layer(name, dtype, bias, sizes, tenon):
    behind, kernels = EPILOGUES[name]
    torch.manual_seed(3)
    model = _Behind(behind, bias).eval().to(dtype)
    steps, left = _checked(model, 2 * torch.randn(*sizes, 48, dtype=dtype), tenon, provider="" if dtype == torch.bfloat16 else LINEAR)
    assert steps == {LINEAR}
    assert left == kernels


@pytest.mark.parametrize("name", ["gelu", "gelu by tanh", "silu", "hardswish", "sigmoid", "tanh", "relu", "relu6", "a residual"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_nan_and_infinity_come_through(name, dtype, tenon):
    model = _Behind(EPILOGUES[name][0]).eval().to(dtype)
    x = torch.randn(9, 48, dtype=dtype)
    x[2, 5], x[4, 7], x[6, 1] = float("nan"), float("inf"), -float("inf")
    steps, _ = _checked(model, x, tenon, provider=LINEAR)
    assert steps == {LINEAR}


# Features in and out, kernel, and the arguments of F.conv: stride, padding, dilation, groups.
CONVOLUTIONS = {
    "3x3": ((6, 12, (3, 3)), {"padding": 1}),
    "stride": ((6, 12, (3, 3)), {"stride": (2, 1), "padding": (1, 0)}),
    "dilated": ((6, 12, (3, 3)), {"dilation": (1, 2), "padding": 2}),
    "one pixel": ((6, 12, (1, 1)), {}),
    "groups": ((6, 12, (3, 3)), {"groups": 3}),
    "depthwise": ((6, 6, (3, 5)), {"groups": 6, "padding": 1}),
    "two each": ((6, 12, (3, 3)), {"groups": 6, "stride": 2}),
    "3d": ((6, 12, (3, 2, 3)), {"padding": 1}),
}


class _Convolution(nn.Module):
    def __init__(self, name, bias, norm, behind):
        super().__init__()
        (features, out, kernel), arguments = CONVOLUTIONS[name]
        three = len(kernel) == 3
        self.body = (nn.Conv3d if three else nn.Conv2d)(features, out, kernel, bias=bias, **arguments)
        self.norm = (nn.BatchNorm3d if three else nn.BatchNorm2d)(out) if norm else nn.Identity()
        self.behind = behind
        if norm:
            nn.init.normal_(self.norm.running_mean)
            nn.init.uniform_(self.norm.running_var, 0.5, 2)
            nn.init.normal_(self.norm.weight)
            nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return self.behind(self.norm(self.body(x)))


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_with_batch_norm_in_their_kernel(name, dtype, bias, memory_format, tenon):
    torch.manual_seed(4)
    model = _Convolution(name, bias, True, F.silu).eval().to(dtype)
    x = torch.randn(2, 6, *((5, 9, 8) if name == "3d" else (9, 10)), dtype=dtype)
    last = torch.channels_last_3d if name == "3d" else torch.channels_last
    x = x.to(memory_format=torch.contiguous_format if memory_format == "contiguous" else last)
    steps, kernels = _checked(model, x, tenon, provider=CONVOLUTION)
    assert steps == {CONVOLUTION}
    # Only another order of the result, and of x; nothing for the norm and SiLU.
    assert kernels <= (0 if memory_format == "channels_last" else 2)


def test_batch_norm_stays_where_roundings_must_not_move(tenon):
    model = _Convolution("3x3", True, True, F.silu).eval().bfloat16()
    x = torch.randn(2, 6, 9, 10, dtype=torch.bfloat16)
    steps, _ = _checked(model, x, tenon, excess_precision=False)
    assert CONVOLUTION not in steps


NETWORKS = {"resnet_tiny": {"host.convolution"}, "gpt_tiny": {"host.matmul"}}
PACKED = {"resnet_tiny": {CONVOLUTION, LINEAR}, "gpt_tiny": {LINEAR}}


@pytest.mark.parametrize("provider", ["", "packed", "generated", "host.convolution", "host.matmul"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_one_network_by_each_provider(name, dtype, provider, tenon):
    """The same module, frozen: who computed its contractions, and the rule."""
    model, args = zoo.CASES[name].build()
    model = model.eval().to(dtype)
    args = tuple(a.to(dtype) if a.is_floating_point() else a for a in args)
    graphs = []

    @contextlib.contextmanager
    def measured():
        tenon.reset_stats()
        yield
        graphs.extend(g for g in tenon.stats()["graphs"] if g["calls"] > 0)

    wanted = {"packed": CONVOLUTION if name == "resnet_tiny" else LINEAR}.get(provider, provider)
    options = {"freeze": True, "fallback": "error", "provider": wanted}
    check_model(model, args, options=options, measure=measured()).raise_if_failed()
    ran = {step for g in graphs for step in g["aten_steps"]}
    packed = ran & {CONVOLUTION, LINEAR}
    if provider == "packed":
        assert wanted in ran
    elif provider == "" and dtype == torch.bfloat16:  # f32 is generated
        assert packed == PACKED[name]
    else:
        assert not packed
    if provider in NETWORKS[name]:
        assert provider in ran


def test_writes_to_weights_are_seen(tenon):
    model = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 8)).eval().bfloat16()
    x = torch.randn(4, 32, dtype=torch.bfloat16)
    fast = _compiled(model)

    def check():
        with torch.no_grad():
            compare(fast(x), model(x), copy.deepcopy(model).double()(x.double())).raise_if_failed()

    check()
    with torch.no_grad():
        model[0].weight.mul_(2)
    check()
    model.load_state_dict({k: v + 0.25 for k, v in model.state_dict().items()})
    check()
    with torch.no_grad():
        model[2].weight = nn.Parameter(torch.randn(8, 32, dtype=torch.bfloat16))
    check()
    frozen = _graph(tenon)["frozen"]
    assert frozen["computed"] == 4 and frozen["sets"] == 2  # the last weights are other tensors


class _Tied(nn.Module):
    """A weight that is looked up, multiplied with twice, and returned."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 16)

    def forward(self, tokens):
        x = self.table(tokens)
        y = F.linear(x, self.table.weight)
        return y, F.linear(x * 2, self.table.weight), self.table.weight


def test_a_weight_that_others_read_too(tenon):
    model = _Tied().eval().bfloat16()
    tokens = torch.randint(0, 40, (2, 7))
    fast = _compiled(model)
    with torch.no_grad():
        found, eager, reference = fast(tokens), model(tokens), copy.deepcopy(model).double()(tokens)
    compare(found, eager, reference).raise_if_failed()
    graph = _graph(tenon)
    assert set(graph["aten_steps"]) == {LINEAR} and graph["frozen"]["values"] == 1


def test_bytes_are_told(tenon):
    model = nn.Linear(64, 32).eval().bfloat16()
    with torch.no_grad():
        _compiled(model)(torch.randn(3, 64, dtype=torch.bfloat16))
    assert _graph(tenon)["frozen"]["bytes"] == 64 * 32 * 2


def test_unfrozen_contractions_are_not_packed(tenon):
    model, x = nn.Linear(64, 32).eval().bfloat16(), torch.randn(3, 64, dtype=torch.bfloat16)
    steps, _ = _checked(model, x, tenon, freeze=False, provider=LINEAR)
    assert steps == {"host.matmul"}


class _Odd(nn.Module):
    """A linear layer, and a convolution, whose bias is a part of something."""

    def __init__(self, part, of_input):
        super().__init__()
        self.weight, self.kernel = nn.Parameter(torch.randn(40, 48)), nn.Parameter(torch.randn(40, 3, 3, 3))
        self.biases = nn.Parameter(torch.randn(40, 6))
        self.part, self.of_input = part, of_input

    def forward(self, x, image, biases):
        bias = self.part(biases if self.of_input else self.biases)
        return F.gelu(F.linear(x, self.weight, bias)), F.conv2d(image, self.kernel, bias)


PARTS = {"a column": lambda b: b[:, 1], "each other": lambda b: b.reshape(-1)[:80:2], "one number": lambda b: b[3, :1].expand(40),
         "the first": lambda b: b.reshape(-1)[:40], "reversed": lambda b: b[:, 0].flip(0)}


@pytest.mark.parametrize("of_input", [True, False], ids=["of an input", "frozen"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", PARTS)
def test_biases_that_do_not_lie_dense(name, dtype, of_input, tenon):
    """The library reads a bias as if it did."""
    torch.manual_seed(2)
    model = _Odd(PARTS[name], of_input).eval().to(dtype)
    args = [torch.randn(5, 48), torch.randn(2, 3, 6, 7), torch.randn(40, 6)]
    args = [a.to(dtype) for a in args]
    with torch.no_grad():
        eager, reference = model(*args), copy.deepcopy(model).double()(*(a.double() for a in args))
        for provider in ("", LINEAR, CONVOLUTION):
            compare(_compiled(model, provider=provider)(*args), eager, reference).raise_if_failed()


def test_a_strided_bias_as_an_argument(tenon):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(40, 48))

        def forward(self, x, bias):
            return F.linear(x, self.weight, bias)

    for dtype in (torch.bfloat16, torch.float32):
        model, x = Model().eval().to(dtype), torch.randn(5, 48, dtype=dtype)
        for bias in (torch.randn(80, dtype=dtype)[::2], torch.randn(1, dtype=dtype).expand(40)):
            with torch.no_grad():
                found = _compiled(model, provider=LINEAR)(x, bias)
                compare(found, model(x, bias), copy.deepcopy(model).double()(x.double(), bias.double())).raise_if_failed()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_results_and_views_without_dims(dtype, tenon):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(48, 1)

        def forward(self, x, z):
            y = self.linear(x).squeeze()
            return y, F.silu(y), y + z.squeeze(), (y + z.squeeze()).reshape(1), self.linear(x).sum()

    model = Model().eval().to(dtype)
    args = [torch.randn(1, 48, dtype=dtype), torch.randn(1, dtype=dtype)]
    with torch.no_grad():
        fast = _compiled(model, provider=LINEAR)
        for _ in range(2):
            compare(fast(*args), model(*args), copy.deepcopy(model).double()(*(a.double() for a in args))).raise_if_failed()


def test_a_matrix_that_is_turned_is_shared_too(tenon):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(48, 40))

        def forward(self, x, y):
            return x @ self.weight, y @ self.weight

    model, args = Model().eval().bfloat16(), [torch.randn(5, 48, dtype=torch.bfloat16) for _ in range(2)]
    with torch.no_grad():
        compare(_compiled(model)(*args), model(*args), copy.deepcopy(model).double()(*(a.double() for a in args))).raise_if_failed()
    assert _graph(tenon)["frozen"]["values"] == 1
