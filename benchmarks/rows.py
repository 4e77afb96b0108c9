"""The benchmark rows: what runs, in which mode, and which bar tenon has to meet.

A row builds a *step*: a zero-argument callable around one call of `compiled(model)`, so that
eager and every peer time the same thing. The models are those of the tests.
"""

import copy
import dataclasses
import types
from typing import Any, Callable

import environment
import torch
import torch.nn.functional as F
from torch import nn

environment.find_packages()
import beyond  # noqa: E402
import equation_of_state  # noqa: E402
from models import nets, zoo  # noqa: E402

ROWS: dict[str, "Row"] = {}


def adamw(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4)


def sgd(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-2)


@dataclasses.dataclass
class Row:
    name: str
    what: str
    build: Callable[[], tuple[Callable, tuple]]
    # "infer" (no_grad), "grad" (a call that records gradients), "train"; "optimizer": `build` gives parameters and their gradients,
    # the call is a step of `optimizer`
    mode: str = "infer"
    optimizer: Callable[[Any], torch.optim.Optimizer] = adamw
    loss: Callable[[Any], torch.Tensor] | None = None
    bar: tuple[str, float] | None = None  # (peer, factor): tenon <= factor * peer
    needs: tuple[str, ...] = ()  # further peers that the bar refers to
    reads: int = 0  # bytes that a call must read: its time is compared with a plain read of as many
    quick: bool = False  # part of run.py --quick
    judged: Callable[[Any, tuple], Any] | None = None  # (outputs, inputs) -> what accuracy is judged on, where an output isn't all told

    def make(self) -> tuple[Callable, tuple]:
        torch.manual_seed(1234)
        return self.build()


def row(name, what, **fields):
    def register(build):
        ROWS[name] = Row(name, what, build, **fields)
        return build

    return register


def own_code(target: Callable) -> Callable:
    """A copy that shares no code object, or one peer's Dynamo cache would slow the next."""
    if isinstance(target, nn.Module):
        return copy.deepcopy(target)
    if not isinstance(target, types.FunctionType):  # of PyTorch's: it has no code object
        return own_code(lambda *args: target(*args))
    code = target.__code__.replace(co_name=target.__name__)
    copied = types.FunctionType(code, target.__globals__, target.__name__, target.__defaults__, target.__closure__)
    copied.__kwdefaults__ = target.__kwdefaults__
    return copied


INDUCTOR = ("inductor", 1.03)
EAGER = ("eager", 1.03)
EAGER_ALONE = ("eager", 1.0)
CALL = ("aot_alloc", 1.2)


# --- calls ----------------------------------------------------------------------------------


@row("call_2op_8f", "(x+1)*2 on 8 floats", bar=CALL, needs=("aot_alloc",))
def _call_2op():
    return lambda x: (x + 1) * 2, (torch.randn(8),)


@row("call_2op_8f_grad", "same with gradients", mode="grad", bar=CALL, needs=("aot_alloc",))
def _call_2op_grad():
    return lambda x: (x + 1) * 2, (torch.randn(8, requires_grad=True),)


@row("adds100_8f", "100 adds on 8 floats")
def _adds100():
    def adds(x):
        y = x
        for _ in range(100):
            y = y + x
        return y

    return adds, (torch.randn(8),)


# --- kernels --------------------------------------------------------------------------------


@row("chain20_1M", "20 ops with tanh on 1M floats", bar=INDUCTOR, quick=True)
def _chain20():
    def chain(x):
        y = x
        for i in range(5):
            y = torch.tanh(y * 1.1 + 0.1 * i) - 0.5 * x
        return y

    return chain, (torch.randn(1 << 20),)


@row("add_ln_gelu_128x768", "gelu(LN(x+r))*.5+r", bar=INDUCTOR)
def _add_ln_gelu():
    weight, bias = torch.randn(768), torch.randn(768)

    def block(x, r):
        return F.gelu(F.layer_norm(x + r, (768,), weight, bias)) * 0.5 + r

    return block, (torch.randn(128, 768), torch.randn(128, 768))


@row("softmax_12x128x128", "scaled, masked softmax", bar=INDUCTOR, quick=True)
def _softmax():
    mask = torch.zeros(128, 128).masked_fill_(torch.ones(128, 128).triu(1).bool(), -1e9)

    def attend(scores):
        return F.softmax(scores * 0.125 + mask, dim=-1)

    return attend, (torch.randn(12, 128, 128),)


@row("reduce_rows_4096x1024", "sum, mean, var over rows", bar=INDUCTOR)
def _reduce_rows():
    return lambda x: (x.sum(1), x.mean(1), x.var(1)), (torch.randn(4096, 1024) + 1,)


@row("reduce_cols_4096x1024", "sum, mean, var over columns", bar=INDUCTOR, quick=True)
def _reduce_cols():
    return lambda x: (x.sum(0), x.mean(0), x.var(0)), (torch.randn(4096, 1024) + 1,)


@row("sum_10M", "sum of 10M floats", bar=INDUCTOR, reads=40_000_000)
def _sum():
    return lambda x: x.sum(), (torch.randn(10_000_000),)


@row("rms_rope_32x128x64", "RMSNorm + rotary", bar=INDUCTOR)
def _rms_rope():
    weight = torch.randn(64)
    angles = torch.outer(torch.arange(128.0), 10000.0 ** (-torch.arange(0, 32) / 32.0))
    cos, sin = (torch.cat([part, part], 1) for part in (angles.cos(), angles.sin()))

    def norm_rotate(x):
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight
        half = torch.cat([-y[..., 32:], y[..., :32]], dim=-1)
        return y * cos + half * sin

    return norm_rotate, (torch.randn(32, 128, 64),)


@row("eos_64k", "48-term equation of state of sea water with its slope, 64k points")
def _eos_64k():
    return equation_of_state.enthalpy, equation_of_state.inputs(1 << 16)


@row("eos_1M", "same for 1M points")
def _eos_1m():
    return equation_of_state.enthalpy, equation_of_state.inputs(1 << 20)


@row("sort_1M", "sort of 1M floats", bar=("eager", 0.5))
def _sort():
    return lambda x: torch.sort(x)[0], (torch.randn(1 << 20),)


def _order(places, inputs):
    """Of equal floats, and there are some thousands, any may come first: what they point at, and that each is there."""
    return inputs[0][places], places.sort()[0]


@row("argsort_1M", "argsort of 1M floats", bar=("eager", 0.5), judged=_order)
def _argsort():
    return lambda x: torch.argsort(x), (torch.randn(1 << 20),)


@row("sample_topk_8x32000", "a sampling step: the 50 best of 32000, softmax, inverse of their distribution", bar=("eager", 0.6))
def _sample_topk():
    def sample(logits, uniform):
        values, index = torch.topk(logits / 0.8, 50)
        below = F.softmax(values, -1).cumsum(-1) < uniform
        return index.gather(-1, below.sum(-1, keepdim=True).clamp(max=49))

    return sample, (torch.randn(8, 32000), torch.rand(8, 1))


@row("embed_cumsum_argmax", "embedding of 4096 tokens, running sums, argmax", bar=("eager", 0.7))
def _embed_cumsum_argmax():
    def run(table, tokens):
        return F.embedding(tokens, table).cumsum(1).argmax(-1)

    return run, (torch.randn(32000, 64), torch.randint(0, 32000, (16, 256)))


@row("scatter_add_1M", "scatter_add of 1M floats into 64k", bar=EAGER_ALONE, quick=True)
def _scatter_add():
    def scatter(target, index, source):
        return target.scatter_add(0, index, source)

    return scatter, (torch.zeros(1 << 16), torch.randint(0, 1 << 16, (1 << 20,)), torch.randn(1 << 20))


# --- models ---------------------------------------------------------------------------------


@row("lj_mlp_b1000", "4x(Linear 16 + tanh) + Linear, 1000 points", quick=True)
def _lj_mlp():
    return nets.mlp_tanh(), (torch.randn(1000, 1),)


def _parameters50():
    """Those of a 4-layer transformer of width 320 with an embedding, by their shapes: 5.91 million elements in 50 tensors."""
    d = 320
    layer = [(3 * d, d), (3 * d,), (d, d), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,), (d,), (d,), (d,), (d,)]
    shapes = [(3056, d), *(4 * layer), (d,)]
    model = nn.ParameterList(nn.Parameter(torch.randn(s)) for s in shapes)
    return model, tuple(torch.randn(s) for s in shapes)


@row("adam50_loop", "a step of Adam over 50 tensors, 5.91M elements, one after the other", mode="optimizer", bar=("eager", 0.5),
     optimizer=lambda parameters: torch.optim.Adam(parameters, foreach=False))  # fmt: skip
def _adam50_loop():
    return _parameters50()


@row("adam50_foreach", "the same by _foreach_ operators", mode="optimizer", bar=("eager", 0.5),
     optimizer=lambda parameters: torch.optim.Adam(parameters, foreach=True))  # fmt: skip
def _adam50_foreach():
    return _parameters50()


@row("adam50_fused", "the same by one operator of PyTorch's", mode="optimizer",
     optimizer=lambda parameters: torch.optim.Adam(parameters, fused=True))  # fmt: skip
def _adam50_fused():
    return _parameters50()


@row("transformer4L_b1s128", "4 encoder layers, d768, 12 heads, ff 3072", bar=EAGER)
def _transformer():
    return zoo.CASES["transformer4l"].make()


@row("transformer4L_b1s128_bf16", "same in bfloat16")
def _transformer_bf16():
    model, (x,) = zoo.CASES["transformer4l"].make()
    return model.bfloat16(), (x.bfloat16(),)


@row("gpt_small_b4s64", "4-layer GPT")
def _gpt():
    return zoo.gpt_small()


@row("gpt_small_b4s64_train", "same with AdamW", mode="train", loss=zoo.next_token_loss)
def _gpt_train():
    return zoo.gpt_small()


@row("resnet18_b4", "ResNet-18, batch 4")
def _resnet18():
    return zoo.resnet18(batch=4)


@row("resnet18_b4_train", "same with AdamW", mode="train", loss=zoo.class_loss)
def _resnet18_train():
    return zoo.resnet18(batch=4)


@row("mobilenetv3_b4", "inverted residuals, SE, hardswish")
def _mobilenet():
    return zoo.mobilenetv3(batch=4)


@row("densenet121_b1", "DenseNet-121, batch 1")
def _densenet121():
    x = torch.randn(1, 3, 224, 224)
    return nets.calibrate(nets.DenseNet(), torch.randn(4, 3, 64, 64)), (x,)


@row("dlrm_b512", "8 embedding bags and MLPs")
def _dlrm():
    return zoo.dlrm(batch=512)


def _click_loss(logits):
    clicked = torch.arange(logits.shape[0]) % 3 == 0
    return F.binary_cross_entropy_with_logits(logits.squeeze(1), clicked.to(logits.dtype))


@row("dlrm_b512_train", "same with SGD", mode="train", loss=_click_loss, optimizer=sgd)
def _dlrm_train():
    return zoo.dlrm(batch=512)


@row("gcn_10k_100k", "2-layer GCN by index_add, 10k nodes, 100k edges")
def _gcn():
    edges = torch.randint(0, 10_000, (2, 100_000))
    return nets.GCN(), (torch.randn(10_000, 64), edges, torch.rand(100_000))


@row("gcn_10k_100k_train", "same with AdamW", mode="train", loss=zoo.class_loss)
def _gcn_train():
    return _gcn()


@row("lstm2x256_b64s50", "nn.LSTM of 2 layers, batch 64, 50 steps")
def _lstm():
    return nn.LSTM(256, 256, 2), (torch.randn(50, 64, 256),)


@row("lstmcell_T32_b16", "Python loop of LSTMCell")
def _lstmcell():
    return nets.LSTMCellLoop(), (torch.randn(32, 16, 64),)


@row("lstmcell_T32_b16_train", "same with AdamW", mode="train", loss=lambda out: out.square().mean())
def _lstmcell_train():
    return _lstmcell()


# --- kinds of programs that the rows above have none of -------------------------------------


@row("bilinear_4x16x64x64", "bilinear resampling to twice the size")
def _bilinear():
    return lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), (torch.randn(4, 16, 64, 64),)


@row("decode_kv4096", "one token of attention over 4096 cached keys and values, masked by the position")
def _decode():
    return nets.CachedAttention(length=4096), (torch.randn(4, 1, 512), torch.tensor([3000]))


@row("decode_kv4096_update", "same, and the token's key and value are written to the cache")
def _decode_update():
    return nets.CachedAttention(length=4096, update=True), (torch.randn(4, 1, 512), torch.tensor([3000]))


@row("moe_256x8", "mixture of 8 experts, 2 of them for each of 256 tokens, dispatched by places of a capacity")
def _moe():
    return nets.MixtureOfExperts(), (torch.randn(256, 256),)


@row("group_norm_4x128x32x32", "SiLU of a group norm")
def _group_norm():
    weight, bias = torch.randn(128), torch.randn(128)

    def block(x):
        return F.silu(F.group_norm(x, 8, weight, bias))

    return block, (torch.randn(4, 128, 32, 32),)


@row("swiglu_bf16_512x2048", "silu(gate) * up in bfloat16")
def _swiglu():
    def gated(x):
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up

    return gated, (torch.randn(512, 4096, dtype=torch.bfloat16),)


@row("int8_weights_16x1024", "4 linear layers of int8 weights with a scale per row, 16 tokens")
def _int8_weights():
    return nn.Sequential(*(nets.Int8Linear(1024, 1024) for _ in range(4))), (torch.randn(16, 1024),)


@row("pools_8x64x56x56", "max and average pooling")
def _pools():
    return lambda x: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2)), (torch.randn(8, 64, 56, 56),)


@row("odd_ln_softmax_37x1021", "layer norm, softmax and sums over sizes that no vector divides")
def _odd():
    weight, bias = torch.randn(1021), torch.randn(1021)

    def block(x):
        y = F.layer_norm(x, (1021,), weight, bias)
        return F.softmax(y, -1), y.sum(0), y.amax(-1)

    return block, (torch.randn(37, 1021),)


@row("conv_channels_last_4x64x56", "two 3x3 convolutions with batch norm and ReLU, channels last")
def _conv_channels_last():
    x = torch.randn(4, 64, 56, 56).to(memory_format=torch.channels_last)
    model = nn.Sequential(nets.conv_bn(64, 64, 3), nets.conv_bn(64, 64, 3))
    return nets.calibrate(model, x).to(memory_format=torch.channels_last), (x,)


@row("image_u8_to_bf16", "8-bit images, normalised by float32 statistics, as bfloat16")
def _image():
    mean, spread = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

    def normalise(image):
        x = image.to(mean.dtype) / 255
        return ((x - mean) / spread).permute(0, 3, 1, 2).to(torch.bfloat16)

    return normalise, (torch.randint(0, 256, (8, 224, 224, 3), dtype=torch.uint8),)


# --- of beyond.py, a row or two of each family ------------------------------------------------

BEYOND = {
    "interp_bilinear_cl": "bilinear resampling, channels last",
    "interp_bicubic_aa_down": "bicubic resampling with antialiasing, 224 to 64",
    "interp_linear1d": "linear resampling of signals to twice the length",
    "adapt_avg_uneven": "adaptive average pooling, windows of unequal lengths",
    "adapt_max_uneven_idx": "adaptive maximum pooling with positions, unequal windows",
    "avg_cl": "3x3 average pooling, channels last",
    "max3d_3s2": "3x3x3 maximum pooling",
    "mean_28x28": "means of planes",
    "gn_cl": "group norm, channels last",
    "ln_bf16": "layer norm in bfloat16",
    "softmax_vocab": "softmax over 50257",
    "ce_smooth": "cross entropy with label smoothing",
    "dec_gqa_2048": "one token of attention, four heads to a cached one",
    "dec_4096_bf16": "one token of attention over 4096 cached in bfloat16",
    "rope_interleaved": "rotary embedding of neighbouring pairs",
    "moe_combine": "weighted rows added by index",
    "moe_scatter_add": "scatter_add of rows by an expanded index",
    "geglu_bf16": "gelu gate in bfloat16, 333x1000",
    "int4_unpack": "int4 weights, two a byte, 8 tokens",
    "quant_dyn": "rows to int8 by their own scale",
    "f16_f32": "f16 times f32",
    "u8_hwc_norm": "8-bit images to normalised planes",
    "emb_ln": "embedding and layer norm",
    "index_2d": "elements by two indices",
    "cummax": "running maxima and their positions",
    "topk_small": "the 2 best of 16, 8192 rows",
    "tile": "a matrix repeated 4x3 times",
    "dot": "product of two vectors",
    "act_fmod": "C remainder of floats",
    "grid_mid": "bilinear grid sampling, 16 channels",
    "stft_mag": "magnitudes of a short-time Fourier transform",
}

for _name, _what in BEYOND.items():
    row(_name, _what)(beyond.ROWS[_name].make)
