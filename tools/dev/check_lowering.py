#!/usr/bin/env python3
"""Compares every lowering of aten.def with eager, through the HLO evaluator: no backend involved.

    tools/dev/check_lowering.py [--tool bin/aten-eval] [--only substring] [--dtypes float32,bfloat16] [--verbose]

Each ATen call that PyTorch's operator samples (OpInfo, forward and backward) and the calls of direct_calls() make is
recorded with its arguments and results, written as a one-node aten::Graph, lowered and evaluated by tools/aten-eval.
Prints per overload: native passes, refusals with their reason, failures. Exit status 1 if anything differs from eager or a
row has no native pass.
"""

import argparse
import collections
import os
import re
import struct
import subprocess
import sys
import tempfile
import warnings

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "s64",
          torch.int32: "s32", torch.int16: "s16", torch.int8: "s8", torch.uint8: "u8", torch.bool: "pred",
          torch.complex64: "c64", torch.complex128: "c128"}
FORMATS = {torch.contiguous_format: "contiguous", torch.channels_last: "channels_last",
           torch.channels_last_3d: "channels_last_3d", torch.preserve_format: "preserve"}
UNDEFINED_VALUES = ("aten.empty", "aten.new_empty")
MAX_ELEMENTS = 20000


def rows():
    text = open(os.path.join(ROOT, "torch_plugin/aten/aten.def")).read()
    return re.findall(r'^ATEN_OP\("(aten\.[^"]+)"', text, re.M)


class Unsupported(Exception):
    pass


def meta(t):
    if t.dtype not in DTYPES or t.layout != torch.strided or t.is_conj() or t.is_neg() or t.is_quantized:
        raise Unsupported(str(t.dtype))
    return (f"{DTYPES[t.dtype]}[{','.join(map(str, t.shape))}]{{{','.join(map(str, t.stride()))}}}"
            + (f"+{t.storage_offset()}" if t.storage_offset() else ""))


def quoted(s):
    return '"' + s.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def floating(v):
    text = repr(float(v))
    return text if any(c in text for c in ".einf") else text + ".0"


class Case:
    """One call as graph text, the bytes of its inputs and the tensors eager gave."""

    def __init__(self, func, args, kwargs, result):
        self.op = str(func)
        self.inputs = []
        self.names = {}
        texts = []
        for i, schema in enumerate(func._schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(schema.name, schema.default_value)
            texts.append(self.argument(value, str(schema.type)))
        outs = tree_flatten(result)[0]
        if not outs:
            raise Unsupported("no result")
        self.expected = [o.detach().clone(memory_format=torch.preserve_format) if isinstance(o, torch.Tensor) else None
                         for o in outs]
        names = [f"%r{i}" for i in range(len(outs))]
        metas = [meta(o) if isinstance(o, torch.Tensor) else "none" for o in outs]
        lines = [f"  %p{i} = input {meta(t)}" for i, t in enumerate(self.inputs)]
        lines.append(f"  {', '.join(names)} = {self.op}({', '.join(texts)}) -> {', '.join(metas)}")
        kept = [n for n, o in zip(names, outs) if isinstance(o, torch.Tensor)]
        lines.append(f"  return ({', '.join(kept)})")
        self.text = 'graph "case" {\n' + "\n".join(lines) + "\n}\n"
        self.expected = [e for e in self.expected if e is not None]
        self.bytes = [(raw(t), storage(t)) for t in self.inputs]

    def argument(self, v, kind):
        if v is None:
            return "none"
        if isinstance(v, torch.Tensor):
            if getattr(v, "is_wrapped_number", lambda: False)():
                return self.argument(v.item(), kind)
            if id(v) not in self.names:
                self.names[id(v)] = len(self.inputs)
                self.inputs.append(v)
            return f"%p{self.names[id(v)]}"
        if isinstance(v, bool):
            return "true" if v else "false"
        if isinstance(v, int):
            if kind in ("Optional[ScalarType]", "ScalarType"):
                raise Unsupported("dtype number")
            return floating(v) if kind == "float" else str(v)
        if isinstance(v, float):
            return floating(v)
        if isinstance(v, complex):
            return f"complex({floating(v.real)},{floating(v.imag)})"
        if isinstance(v, str):
            return quoted(v)
        if isinstance(v, torch.dtype):
            return f"dtype:{DTYPES[v]}"
        if isinstance(v, torch.device):
            return f"device:{v}"
        if isinstance(v, torch.layout):
            return "layout:strided"
        if isinstance(v, torch.memory_format):
            return f"format:{FORMATS[v]}"
        if isinstance(v, (list, tuple)):
            return "[" + ", ".join(self.argument(x, "") for x in v) + "]"
        raise Unsupported(str(type(v)))


def raw(t):
    t = t.detach().contiguous()
    if t.numel() == 0:
        return b""
    return t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.dtype != torch.bool else t.numpy().tobytes()


def storage(t):
    data = t.detach().untyped_storage()
    start = t.storage_offset() * t.element_size()
    size = min(data.nbytes(), start + 8 * MAX_ELEMENTS)
    return bytes(torch.tensor([], dtype=torch.uint8).set_(data)[start:size].tolist()) if size > start else b""


class Recorder(TorchDispatchMode):
    def __init__(self, wanted, limit):
        super().__init__()
        self.wanted, self.limit = wanted, limit
        self.cases = collections.defaultdict(list)
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        before = None
        if str(func) in self.wanted:
            before = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        result = func(*args, **kwargs)
        if before is not None and sum(t.numel() for t in before) <= MAX_ELEMENTS:
            try:
                self.add(Case(func, args, kwargs, result))
            except (Unsupported, KeyError, RuntimeError):
                pass
        return result

    def add(self, case):
        types = {line.split(" = input ")[1].split("[")[0] for line in case.text.splitlines() if " = input " in line}
        key = (case.op, tuple(sorted(types)))
        if case.text in self.seen or len(self.cases[key]) >= self.limit:
            return
        self.seen.add(case.text)
        self.cases[key].append(case)


def opinfo_calls(recorder, dtypes, only, samples):
    from torch.testing._internal.common_methods_invocations import op_db
    skip = ("jiterator", "sparse", "nn.functional.rnn", "ctc_loss", "linalg", "fft", "ops.", "_refs")
    for info in op_db:
        if any(s in info.name for s in skip) or (only and only not in info.name):
            continue
        for dtype in dtypes:
            if dtype not in info.supported_dtypes("cpu"):
                continue
            grad = dtype.is_floating_point and dtype in info.supported_backward_dtypes("cpu")
            try:
                for i, s in enumerate(info.sample_inputs("cpu", dtype, requires_grad=grad)):
                    if i >= samples:
                        break
                    with recorder:
                        out = info(s.input, *s.args, **s.kwargs)
                        flat = [o for o in tree_flatten(out)[0] if isinstance(o, torch.Tensor) and o.requires_grad]
                        if grad and flat:
                            sum(o.float().sum() if not o.is_complex() else o.abs().sum() for o in flat).backward()
            except Exception:  # noqa: BLE001: a sample that eager itself refuses
                continue


def direct_calls(recorder, dtype):
    """Overloads that eager's own dispatch does not reach: they come from AOTAutograd's decompositions."""
    A = torch.ops.aten
    g = torch.Generator().manual_seed(0)
    fl = dtype.is_floating_point

    def t(*shape, low=-4, high=5):
        shape = () if shape == ((),) else shape
        if fl:
            return torch.randn(shape, generator=g).to(dtype)
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=g).bool()
        return torch.randint(low, high, shape, generator=g).to(dtype)

    def call(name, *args, **kwargs):
        try:
            op = A
            for part in name.split("."):
                op = getattr(op, part)
            with recorder:
                op(*args, **kwargs)
        except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError, IndexError):
            pass

    x, y, z = t(2, 3, 4), t(3, 1), t(())
    cl = t(2, 3, 4, 5).to(memory_format=torch.channels_last)
    variants = [x, x.transpose(0, 2), x[:, ::2], t(1, 3, 1).expand(2, 3, 4), t(0, 3), z, cl, t(3, 5)[1:, 1:4]]
    for name in ("add", "sub", "rsub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod", "pow",
                 "bitwise_and", "bitwise_or", "bitwise_xor", "copysign", "floor_divide", "__lshift__", "__rshift__",
                 "bitwise_left_shift", "bitwise_right_shift", "clamp_min", "clamp_max", "atan2", "maximum", "minimum"):
        scalars = [2, 1, -3, True] + ([0.5, -1.75, 0.1, float("inf")] if name not in ("__lshift__", "__rshift__") else [])
        for v in variants:
            for s in scalars:
                for overload in ("Scalar", "default", "Tensor", "Tensor_Scalar"):
                    call(f"{name}.{overload}", v, s)
                call(f"{name}.Scalar_Tensor", s, v)
                if name == "pow":
                    call("pow.Scalar", s, v)
            for w in (x, y, z, torch.tensor(2.5), torch.tensor(3), torch.tensor([1, 2, 3, 4])):
                for overload in ("Tensor", "default", "Tensor_Tensor"):
                    call(f"{name}.{overload}", v, w)
            if name in ("add", "sub", "rsub"):
                call(f"{name}.Tensor", v, y, alpha=2)
                call(f"{name}.Scalar", v, 3, 2)
    for mode in (None, "floor", "trunc"):
        for v in variants:
            call("div.Tensor_mode", v, t(3, 1, low=1), rounding_mode=mode)
            call("div.Scalar_mode", v, 2, rounding_mode=mode)
            call("div.Scalar_mode", v, -0.7, rounding_mode=mode)
    unary = [r.split(".")[1] for r in rows() if r.endswith(".default")]
    for name in unary:
        for v in variants:
            call(f"{name}.default", v)
    for v in variants:
        mask = torch.rand(v.shape, generator=g) > 0.5
        for s in (1, 0.5, False):
            call("where.ScalarSelf", mask, s, v)
            call("where.ScalarOther", mask, v, s)
            call("where.Scalar", mask, s, 2)
            call("masked_fill.Scalar", v, mask, s)
        call("where.self", mask, v, z)
        call("masked_fill.Tensor", v, mask, z)
        call("clamp.default", v, -1, 2)
        call("clamp.default", v, None, 0.5)
        call("clamp.Tensor", v, z, None)
        call("view.default", v.contiguous(), [-1])
        call("reshape.default", v, [-1])
        call("alias.default", v)
        call("detach.default", v)
        call("lift_fresh_copy.default", v)
        call("lift.default", v)
        call("copy.default", torch.zeros(v.shape, dtype=torch.float32), v)
        call("clone.default", v)
        call("clone.default", v, memory_format=torch.contiguous_format)
        call("contiguous.default", v)
        call("squeeze.dims", v, [0])
        call("squeeze.default", v)
        call("squeeze.dim", v, 0)
        call("flip.default", v, [0] if v.dim() else [])
        call("new_full.default", v, [2, 2], 3)
        call("full_like.default", v, 2)
        call("zeros_like.default", v)
        call("zero.default", v)
        call("fill.Scalar", v, 2)
        call("fill.Tensor", v, torch.tensor(1))
        call("lift_fresh.default", v)
        call("ones_like.default", v)
        call("new_zeros.default", v, [3])
        call("new_ones.default", v, [3])
        call("view.dtype", v, torch.int32)
        call("square.default", v)
        for name in ("any", "all"):
            call(f"{name}.default", v)
            call(f"{name}.dims", v, [0] if v.dim() else [])
        for to in (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.int32, torch.float64, torch.uint8):
            call("_to_copy.default", v, dtype=to)
        for n in (0, 1, -1):
            if v.dim() >= 2:
                call("tril.default", v, n)
                call("triu.default", v, n)
    call("as_strided.default", t(4, 5), [2, 3], [5, 1], 1)
    call("as_strided.default", t(4, 5), [3, 4], [1, 5], 0)
    call("as_strided.default", t(20), [4, 3], [2, 1], 2)
    call("as_strided.default", t(4, 6).t(), [2, 2, 3], [12, 3, 1])
    call("as_strided.default", t(4, 5)[1:], [2, 3], [5, 1])
    call("as_strided.default", t(4, 5), [3, 4], [0, 1])
    call("unfold.default", t(7, 4), 0, 3, 2)
    call("slice_scatter.default", t(5, 4), t(2, 4), 0, 1, 5, 2)
    call("slice_scatter.default", t(5, 4), t(5, 2), 1, 1, 3, 1)
    call("select_scatter.default", t(5, 4), t(4), 0, -1)
    call("constant_pad_nd.default", t(3, 4), [1, 2, -1, 1], 1)
    call("constant_pad_nd.default", t(3, 4), [1, 0])
    for kind in ("reflection_pad", "replication_pad"):
        call(f"{kind}1d.default", t(2, 5), [2, 1])
        call(f"{kind}2d.default", t(2, 4, 5), [2, 1, 1, 3])
        call(f"{kind}3d.default", t(2, 3, 4, 5), [2, 1, 1, 3, 1, 2])
    call("repeat.default", t(2, 3), [2, 1, 3])
    call("roll.default", t(4, 5), [1, -2], [0, 1])
    call("cat.default", [t(2, 3), t(0), t(4, 3)], 0)
    call("cat.default", [t(2, 3), torch.ones(2, 2)], 1)
    call("stack.default", [t(2, 3), t(2, 3)], -1)
    call("split.Tensor", t(7, 2), 3, 0)
    call("split_with_sizes.default", t(7, 2), [3, 4], 0)
    call("unbind.int", t(3, 4), 1)
    call("diagonal.default", t(3, 5, 4), 1, 0, 2)
    for start, end, step in ((0, 7, 1), (3, 10, 2), (5, -4, -2)):
        call("arange.start_step", start, end, step, dtype=None if dtype == torch.bool else dtype)
    call("arange.start_step", 0, 1, 0.1, dtype=torch.float32)
    call("arange.start", 2, 9)
    call("arange.default", 5)
    call("full.default", [2, 3], 7, dtype=dtype)
    call("full.default", [2, 3], 0.1)
    call("scalar_tensor.default", 2.5, dtype=dtype)
    call("zeros.default", [3], dtype=dtype)
    call("ones.default", [3], dtype=dtype)
    call("eye.default", 3, dtype=dtype)
    call("eye.m", 3, 5, dtype=dtype)
    call("linspace.default", -1.0, 2.0, 9, dtype=dtype)
    for e in ("empty.memory_format", ):
        call(e, [2, 3], dtype=dtype)
    call("empty_permuted.default", [2, 3], [1, 0], dtype=dtype)
    call("empty_strided.default", [2, 3], [1, 2], dtype=dtype)
    call("new_empty.default", x, [3])
    call("new_empty_strided.default", x, [2, 3], [1, 2])
    call("empty_like.default", x)
    i = torch.tensor([[0, 2], [1, -1]])
    call("index.Tensor", t(3, 4), [i])
    call("index.Tensor", t(3, 4, 5), [None, i])
    call("index.Tensor", t(3, 4, 5), [i, None, torch.tensor([1, 2])])
    call("index.Tensor", t(3, 4, 5), [None, i, torch.tensor([[1], [2]])])
    call("_unsafe_index.Tensor", t(3, 4, 5), [None, i])
    call("index_put.default", t(3, 4), [torch.tensor([0, 2])], t(2, 4))
    call("index_put.default", t(3, 4), [torch.tensor([0, 0])], t(4), True)
    call("index_put.default", t(3, 4, 5), [None, torch.tensor([3, 1]), torch.tensor([0, 4])], t(3, 2))
    call("index_put.default", t(3, 4), [t(3, 4) > 0], t(()))
    call("_unsafe_index_put.default", t(3, 4), [torch.tensor([0, 2])], t(2, 4))
    mask, j = torch.tensor([[True, False], [True, True]]), torch.tensor([[0, 7], [2, -1]])
    call("_unsafe_masked_index.default", t(3, 4), mask, [j, None], 2)
    call("_unsafe_masked_index.default", t(3, 4), mask, [j, torch.tensor([[9, 1], [0, 3]])], 0)
    call("_unsafe_masked_index_put_accumulate.default", t(3, 4), mask, [j, torch.tensor([[9, 1], [0, 3]])], t(2, 2))
    call("_unsafe_masked_index_put_accumulate.default", t(3, 4), mask[..., None], [j], t(2, 2, 4))
    call("pixel_unshuffle.default", t(2, 3, 4, 6), 2)
    call("pixel_shuffle.default", t(2, 8, 2, 3), 2)
    call("embedding.default", t(10, 4), torch.tensor([[1, 2], [9, 0]]))
    call("index_select.default", t(3, 4), 1, torch.tensor([3, 0]))
    call("gather.default", t(3, 4), 1, torch.tensor([[3, 0], [1, 1]]))
    call("scatter.src", t(3, 4), 0, torch.tensor([[2, 0, 1]]), t(2, 4))
    call("scatter.value", t(3, 4), 1, torch.tensor([[2], [0]]), 1)
    call("scatter_add.default", t(3, 4), 0, torch.tensor([[2, 0, 1], [2, 2, 2]]), t(2, 4))
    for r in ("sum", "prod", "amax", "amin"):
        call("scatter_reduce.two", t(5), 0, torch.tensor([0, 1, 1, 4]), t(4), r)
    call("index_add.default", t(3, 4), 1, torch.tensor([1, 1, 3]), t(3, 3), alpha=2)
    call("index_copy.default", t(3, 4), 1, torch.tensor([1, 3]), t(3, 2))
    if not fl:
        return
    call("mm.default", t(3, 4), t(4, 5))
    call("bmm.default", t(2, 3, 4), t(2, 4, 5))
    for beta, alpha in ((1, 1), (0.5, 2), (0, 1)):
        call("addmm.default", t(5), t(3, 4), t(4, 5), beta=beta, alpha=alpha)
        call("baddbmm.default", t(2, 1, 5), t(2, 3, 4), t(2, 4, 5), beta=beta, alpha=alpha)
        call("addmv.default", t(3), t(3, 4), t(4), beta=beta, alpha=alpha)
    call("mv.default", t(3, 4), t(4))
    call("dot.default", t(4), t(4))
    call("vdot.default", t(4), t(4))
    n, w, b = t(2, 6, 4, 3), t(6), t(6)
    m, v = torch.randn(6, generator=g), torch.rand(6, generator=g) + 0.5
    for weight, bias in ((w, b), (None, None)):
        call("_native_batch_norm_legit_no_training.default", n, weight, bias, m.to(dtype), v.to(dtype), 0.1, 1e-5)
        call("native_batch_norm.default", n, weight, bias, m.to(dtype), v.to(dtype), False, 0.1, 1e-5)
        call("_native_batch_norm_legit.no_stats", n, weight, bias, True, 0.1, 1e-5)
        call("_native_batch_norm_legit_functional.default", n, weight, bias, m.to(dtype), v.to(dtype), True, 0.1, 1e-5)
        call("native_layer_norm.default", n, [4, 3], None if weight is None else t(4, 3), None if bias is None else t(4, 3), 1e-5)
        call("native_group_norm.default", n, weight, bias, 2, 6, 12, 3, 1e-5)
        y0, mean, rstd = A.native_layer_norm.default(n, [4, 3], None if weight is None else t(4, 3), None, 1e-5)
        call("native_layer_norm_backward.default", t(2, 6, 4, 3), n, [4, 3], mean, rstd, None if weight is None else t(4, 3),
             None if bias is None else t(4, 3), [True, weight is not None, bias is not None])
        y0, mean, rstd = A.native_group_norm.default(n, weight, bias, 2, 6, 12, 3, 1e-5)
        call("native_group_norm_backward.default", t(2, 6, 4, 3), n, mean, rstd, weight, 2, 6, 12, 3,
             [True, weight is not None, weight is not None])
        call("native_batch_norm_backward.default", t(2, 6, 4, 3), n, weight, m.to(dtype), v.to(dtype), m.to(dtype), v.to(dtype), True,
             1e-5, [True, weight is not None, weight is not None])
        call("native_batch_norm_backward.default", t(2, 6, 4, 3), n, weight, m.to(dtype), v.to(dtype), None, None, False, 1e-5,
             [True, weight is not None, weight is not None])
    call("_native_batch_norm_legit_no_training.default", n, w, b, m, v, 0.1, 1e-5)
    for d in (0, 1, -1):
        call("_softmax.default", n, d, False)
        call("_log_softmax.default", n, d, False)
        call("_softmax_backward_data.default", t(3, 4), torch.softmax(t(3, 4), d % 2), d % 2, dtype)
        call("_log_softmax_backward_data.default", t(3, 4), torch.log_softmax(t(3, 4), d % 2), d % 2, dtype)
    call("embedding_dense_backward.default", t(2, 3, 4), torch.tensor([[1, 2, 1], [9, 0, 0]]), 10, 2, False)
    for reduction in (0, 1, 2):
        target, weight = torch.tensor([0, 3, 2]), t(5).abs()
        for ww in (None, weight):
            for ignore in (-100, 2):
                call("nll_loss_forward.default", t(3, 5), target, ww, reduction, ignore)
                grad = t(3) if reduction == 0 else t(())
                call("nll_loss_backward.default", grad, t(3, 5), target, ww, reduction, ignore, torch.tensor(2.0).to(dtype))
                places = torch.tensor([[0, 3, 2], [4, 2, 1]]).expand(2, 2, 3)
                call("nll_loss2d_forward.default", t(2, 5, 2, 3), places, ww, reduction, ignore)
                grad = t(2, 2, 3) if reduction == 0 else t(())
                call("nll_loss2d_backward.default", grad, t(2, 5, 2, 3), places, ww, reduction, ignore, torch.tensor(2.0).to(dtype))
    image = t(2, 3, 8, 6)
    for ceil in (False, True):
        call("max_pool2d_with_indices.default", image, [3, 2], [2, 2], [1, 0], [1, 1], ceil)
        call("avg_pool2d.default", image, [3, 2], [2, 2], [1, 0], ceil, True, None)
        call("avg_pool2d.default", image, [3, 3], [2, 2], [1, 1], ceil, False, None)
        call("avg_pool2d.default", image.to(memory_format=torch.channels_last), [2, 2], [], 0, ceil, True, 3)
    call("_adaptive_avg_pool2d.default", image, [1, 1])
    call("_adaptive_avg_pool2d.default", image, [4, 3])
    call("_adaptive_avg_pool3d.default", t(2, 3, 4, 4, 2), [1, 2, 1])
    for size, scale in (([16, 12], None), ([11, 6], None), ([16, 12], 2.0), ([4, 3], 0.5)):
        call("upsample_nearest2d.default", image, size, scale, scale)
        for align in (False, True):
            call("upsample_bilinear2d.default", image, size, align, scale, scale)
    call("upsample_nearest1d.default", t(2, 3, 5), [8], None)
    call("upsample_linear1d.default", t(2, 3, 5), [8], False, None)
    call("upsample_nearest3d.default", t(1, 2, 3, 2, 2), [6, 4, 2], None, None, None)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 0.5, 2.5, -2.5, 1e-30, 30.0]).to(dtype)
    for name in unary:
        if name != "gelu":  # eager gives NaN for inf on some machines
            call(f"{name}.default", special)
    for s in (0, 1, 2.5):
        call("xlogy.Scalar_Other", special, s)
        call("xlogy.Scalar_Self", s, special)
    for name in ("fmax", "fmin", "maximum", "minimum", "remainder", "fmod", "atan2", "hypot", "floor_divide", "pow", "xlogy",
                 "logaddexp", "copysign", "div", "eq", "lt", "ge"):
        for overload in ("Tensor", "default", "Tensor_Tensor"):
            call(f"{name}.{overload}", special[:, None], special[None, :])
    for mode in ("floor", "trunc"):
        call("div.Tensor_mode", special[:, None], special[None, :], rounding_mode=mode)
    for name in ("amax", "amin", "argmax", "argmin", "max", "min"):
        call(f"{name}.default", torch.stack([special, special.flip(0)]))
        call(f"{name}.dim", torch.stack([special, special.flip(0)]), 1)
        call(f"{name}.default", torch.stack([special, special.flip(0)]), 1)
    for e in (2, 3, -1, -2, 0.5, -0.5, 0, 1, 1.7):
        call("pow.Tensor_Scalar", special, e)
    for name in ("hardtanh", "hardsigmoid", "hardswish", "leaky_relu", "elu", "softplus", "gelu", "silu", "tanh", "sigmoid",
                 "threshold", "mish", "log_sigmoid"):
        p = {"hardtanh": (-1, 1), "leaky_relu": (0.1, False), "softplus": (1, 20), "threshold": (0.1,)}.get(name, ())
        v = t(40)
        if name == "elu":
            call("elu_backward.default", t(40), 1.0, 1.0, 1.0, False, v)
            call("elu_backward.default", t(40), 1.0, 1.0, 1.0, True, torch.nn.functional.elu(v))
        elif name == "log_sigmoid":
            call("log_sigmoid_backward.default", t(40), v, torch.exp(-v.abs()))
        else:
            call(f"{name}_backward.default", t(40), v, *p)
    call("gelu.default", t(40), approximate="tanh")
    call("gelu_backward.default", t(40), t(40), approximate="tanh")
    call("hardtanh.default", t(40), 0.0, 6.0)
    for ord in (2, 1, 0, 3, float("inf"), -float("inf")):
        call("linalg_vector_norm.default", t(3, 4), ord, [1], True)
    for c in (0, 1, 2):
        for name in ("var", "std", "var_mean", "std_mean"):
            call(f"{name}.correction", t(3, 4, 5), [0, 2], correction=c, keepdim=c == 1)


def evaluate(tool, cases):
    with tempfile.TemporaryDirectory() as folder:
        path, out = os.path.join(folder, "in.bin"), os.path.join(folder, "out.bin")
        with open(path, "wb") as f:
            def put(b):
                f.write(struct.pack("<Q", len(b)) + b)
            for case in cases:
                put(case.text.encode())
                f.write(struct.pack("<Q", len(case.bytes)))
                for logical, flat in case.bytes:
                    put(logical)
                    put(flat)
        subprocess.run([tool, "--cases", path, out], check=True)
        data = open(out, "rb").read()
    at = 0

    def take():
        nonlocal at
        (n,) = struct.unpack_from("<Q", data, at)
        at += 8
        return n

    def blob():
        nonlocal at
        n = take()
        at += n
        return data[at - n:at]

    answers = []
    for _ in cases:
        status = blob().decode()
        answers.append((status, [blob() for _ in range(take())]))
    return answers


def tensor_of(bytes_, like):
    if like.numel() == 0:
        return torch.empty(like.shape, dtype=like.dtype)
    flat = torch.frombuffer(bytearray(bytes_), dtype=like.dtype)
    return flat.reshape(like.shape)


TOLERANCE = {torch.float32: (2e-5, 1e-5), torch.float64: (1e-9, 1e-10), torch.bfloat16: (1.7e-2, 1e-2), torch.float16: (2e-3, 2e-3)}


# Eager rounds once in bias + product (library), we after the product; the backend calls the library again. The weight
# gradients of layer_norm and the sums of adaptive pooling are rounded by eager at each step.
WIDER = ("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default", "aten.native_layer_norm_backward.default",
         "aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")


def differs(got, want, op):
    if not want.dtype.is_floating_point:
        bad = got != want
    else:
        rtol, atol = TOLERANCE[want.dtype]
        if op in WIDER and want.dtype in (torch.bfloat16, torch.float16):
            rtol, atol = 2 * rtol, 8 * atol
        bad = ~torch.isclose(got.double(), want.double(), rtol=rtol, atol=atol, equal_nan=True)
    if not bad.any():
        return None
    i = bad.reshape(-1).nonzero()[0].item()
    return f"{int(bad.sum())}/{bad.numel()} differ; first at {i}: got {got.reshape(-1)[i].item()}, eager {want.reshape(-1)[i].item()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=os.path.join(ROOT, "build/release/bin/aten-eval"))
    parser.add_argument("--only", default="", help="OpInfo names and overloads that contain this")
    parser.add_argument("--dtypes", default="float32,bfloat16,int64,bool")
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--limit", type=int, default=30, help="cases per overload and dtypes")
    parser.add_argument("--no-opinfo", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    wanted = {r for r in rows() if args.only in r}
    recorder = Recorder(wanted, args.limit)
    dtypes = [getattr(torch, d) for d in args.dtypes.split(",")]
    for dtype in dtypes:
        direct_calls(recorder, dtype)
    if not args.no_opinfo:
        opinfo_calls(recorder, dtypes, "", args.samples)
    cases = [c for list_ in recorder.cases.values() for c in list_]
    passed, refused, failed = collections.Counter(), collections.defaultdict(collections.Counter), []
    for case, (status, outputs) in zip(cases, evaluate(args.tool, cases)):
        if status.startswith("UNIMPLEMENTED"):
            reason = re.search(r'"reason":"([^"]*)"', status)
            refused[case.op][reason.group(1) if reason else status] += 1
            continue
        problem = None if status == "ok" else status
        if problem is None and not case.op.startswith(UNDEFINED_VALUES):
            for got, want in zip(outputs, case.expected):
                problem = problem or differs(tensor_of(got, want), want, case.op)
        if problem is None:
            passed[case.op] += 1
        else:
            failed.append((case, problem))
    for op in sorted(wanted):
        reasons = "; ".join(f"{n}x {r}" for r, n in refused[op].items())
        if args.verbose or reasons or not passed[op]:
            print(f"{passed[op]:5d} passed  {op}  {('refused: ' + reasons) if reasons else ''}")
    shown = collections.Counter()
    for case, problem in failed:
        shown[case.op] += 1
        if shown[case.op] <= (20 if args.verbose else 2):
            print(f"FAILED {case.op}: {problem}\n{case.text}")
    without = sorted(op for op in wanted if not passed[op])
    print(f"{len(cases)} cases of {len(wanted)} rows: {sum(passed.values())} pass, "
          f"{sum(sum(r.values()) for r in refused.values())} refused, {len(failed)} fail; "
          f"rows without a native pass: {', '.join(without) or 'none'}")
    return 1 if failed or without else 0


if __name__ == "__main__":
    sys.exit(main())
