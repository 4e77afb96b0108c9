"""The benchmark rows: what runs, in which mode, and which bar tenon has to meet.

A row builds a *step*: a zero-argument callable around one call of `compiled(model)`, so that
eager and every peer time the same thing. The models are those of the tests.
"""

import copy
import dataclasses
import pathlib
import sys
import types
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from models import nets, zoo  # noqa: E402

ROWS: dict[str, "Row"] = {}


@dataclasses.dataclass
class Row:
    name: str
    what: str
    build: Callable[[], tuple[Callable, tuple]]
    # "infer" (no_grad), "grad" (a call that records gradients), "train"; "optimizer": `build` gives parameters and their gradients,
    # the call is a step of `optimizer`
    mode: str = "infer"
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None
    loss: Callable[[Any], torch.Tensor] | None = None
    bar: tuple[str, float] | None = None  # (peer, factor): tenon <= factor * peer
    needs: tuple[str, ...] = ()  # further peers that the bar refers to
    reads: int = 0  # bytes that a call must read: its time is compared with a plain read of as many

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
    code = target.__code__.replace(co_name=target.__name__)
    return types.FunctionType(code, target.__globals__, target.__name__, None, target.__closure__)


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


@row("chain20_1M", "20 ops with tanh on 1M floats", bar=INDUCTOR)
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


@row("softmax_12x128x128", "scaled, masked softmax", bar=INDUCTOR)
def _softmax():
    mask = torch.zeros(128, 128).masked_fill_(torch.ones(128, 128).triu(1).bool(), -1e9)

    def attend(scores):
        return F.softmax(scores * 0.125 + mask, dim=-1)

    return attend, (torch.randn(12, 128, 128),)


@row("reduce_rows_4096x1024", "sum, mean, var over rows", bar=INDUCTOR)
def _reduce_rows():
    return lambda x: (x.sum(1), x.mean(1), x.var(1)), (torch.randn(4096, 1024) + 1,)


@row("reduce_cols_4096x1024", "sum, mean, var over columns", bar=INDUCTOR)
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


@row("sort_1M", "sort of 1M floats", bar=("eager", 0.5))
def _sort():
    return lambda x: torch.sort(x)[0], (torch.randn(1 << 20),)


@row("argsort_1M", "argsort of 1M floats", bar=("eager", 0.5))
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


@row("scatter_add_1M", "scatter_add of 1M floats into 64k", bar=EAGER_ALONE)
def _scatter_add():
    def scatter(target, index, source):
        return target.scatter_add(0, index, source)

    return scatter, (torch.zeros(1 << 16), torch.randint(0, 1 << 16, (1 << 20,)), torch.randn(1 << 20))


# --- models ---------------------------------------------------------------------------------


@row("lj_mlp_b1000", "4x(Linear 16 + tanh) + Linear, 1000 points")
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


@row("gpt_small_b4s64_train", "same with AdamW", mode="train", loss=zoo._next_token_loss)
def _gpt_train():
    return zoo.gpt_small()


@row("resnet18_b4", "ResNet-18, batch 4")
def _resnet18():
    return zoo.resnet18(batch=4)


@row("mobilenetv3_b4", "inverted residuals, SE, hardswish")
def _mobilenet():
    return zoo.mobilenetv3(batch=4)


@row("dlrm_b512", "8 embedding bags and MLPs")
def _dlrm():
    return zoo.dlrm(batch=512)


@row("lstmcell_T32_b16", "Python loop of LSTMCell")
def _lstmcell():
    return nets.LSTMCellLoop(), (torch.randn(32, 16, 64),)
