"""A call of an ATen overload as the text of a one-node aten::Graph, lowered and evaluated by tools/aten-eval: no backend involved."""

import json
import os
import struct
import subprocess
import tempfile

import torch

from plugin.aten_calls import Call

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "s64",
          torch.int32: "s32", torch.int16: "s16", torch.int8: "s8", torch.uint8: "u8", torch.bool: "pred",
          torch.complex64: "c64", torch.complex128: "c128"}
FORMATS = {torch.contiguous_format: "contiguous", torch.channels_last: "channels_last",
           torch.channels_last_3d: "channels_last_3d", torch.preserve_format: "preserve"}
MAX_ELEMENTS = 20000  # the evaluator is slow


class Unsupported(Exception):
    """No text says this call."""


def meta(t, is_result=False):
    has_bit = t.is_conj() or t.is_neg()  # a result's: what is read through it
    if t.dtype not in DTYPES or t.layout != torch.strided or t.is_quantized or has_bit and not is_result:
        raise Unsupported(str(t.dtype))
    return (f"{DTYPES[t.dtype]}[{','.join(map(str, t.shape))}]{{{','.join(map(str, t.stride()))}}}"
            + (f"+{t.storage_offset()}" if t.storage_offset() else ""))


def quoted(s):
    return '"' + s.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def floating(v):
    text = repr(float(v))
    return text if any(c in text for c in ".einf") else text + ".0"


class Case:
    """A call as graph text and the bytes of its inputs. Raises Unsupported."""

    def __init__(self, call: Call):
        self.call = call
        self.inputs = []
        self.names = {}
        texts = []
        if sum(t.numel() for t in call.tensors()) > MAX_ELEMENTS:
            raise Unsupported("large")
        for i, schema in enumerate(call.overload._schema.arguments):
            value = call.args[i] if i < len(call.args) else call.kwargs.get(schema.name, schema.default_value)
            texts.append(self.argument(value, str(schema.type)))
        outs = call.eager
        if not outs:
            raise Unsupported("no result")
        names = [f"%r{i}" for i in range(len(outs))]
        metas = [meta(o, True) if isinstance(o, torch.Tensor) else "none" for o in outs]
        lines = [f"  %p{i} = input {meta(t)}" for i, t in enumerate(self.inputs)]
        lines.append(f"  {', '.join(names)} = {call.overload}({', '.join(texts)}) -> {', '.join(metas)}")
        kept = [n for n, o in zip(names, outs) if isinstance(o, torch.Tensor)]
        lines.append(f"  return ({', '.join(kept)})")
        self.text = 'graph "case" {\n' + "\n".join(lines) + "\n}\n"
        self.results = [o for o in outs if isinstance(o, torch.Tensor)]
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
        if isinstance(v, torch.dtype) and v in DTYPES:
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
    flat = t.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if t.numel() else b""


def storage(t):
    data = t.detach().untyped_storage()
    start = t.storage_offset() * t.element_size()
    size = min(data.nbytes(), start + 8 * MAX_ELEMENTS)
    return torch.tensor([], dtype=torch.uint8).set_(data)[start:size].numpy().tobytes() if size > start else b""


def evaluate(tool, cases, target=None):
    """Per case: "ok", or what is wrong, and the bytes of the results; with a target where its instructions went, too (aten-eval)."""
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
        subprocess.run([tool, "--cases", path, out, *([f"--target={target}"] if target else [])], check=True)
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
        outputs = [blob() for _ in range(take())]
        answers.append((status, outputs, json.loads(blob())) if target else (status, outputs))
    return answers


def tensor_of(data, like):
    if like.numel() == 0:
        return torch.empty(like.shape, dtype=like.dtype)
    return torch.frombuffer(bytearray(data), dtype=like.dtype).reshape(like.shape)
