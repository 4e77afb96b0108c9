"""Rows outside of torch.compile: torch.export's program of a row, and the runtimes that take it.

Inputs are made before the clock starts, in the runtime's own form; results stay in it. OpenVINO computes in the
row's precision (its default on some machines is bfloat16) and hands out views of its own memory, as its users do.
"""

import contextlib
import pathlib
import tempfile
import time

import numpy
import rows
import torch
from torch.utils import _pytree as pytree


class NotExpressible(Exception):
    """The peer has no way to say this row; the message names what."""


class Called(torch.nn.Module):
    """A function as a module, which torch.export wants; with a loss behind it where there is one."""

    def __init__(self, target, loss=None):
        super().__init__()
        self.target, self.loss = target, loss

    def forward(self, *args):
        out = self.target(*args)
        return out if self.loss is None else self.loss(out)


def prepare(row, train: bool = False):
    """(the row's module, its inputs), of its own code."""
    model, args = row.make()
    module = Called(rows.own_code(model), row.loss if train else None)
    return module.train(train), args


def export(module, args) -> torch.export.ExportedProgram:
    """The functional program of ATen operators, composite ones taken apart."""
    with contextlib.nullcontext() if module.training else torch.no_grad():
        return torch.export.export(module, args, strict=False)


class ExportedStep:
    """What the steps of exporting peers share. `seconds` are the first call's phases."""

    graphs = None

    def __init__(self, row):
        self.row, self.seconds = row, {}
        self.module, self.args = prepare(row, row.mode == "train")

    @contextlib.contextmanager
    def phase(self, name: str):
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def first_call(self) -> None:
        self.build()
        with self.phase("run"):
            self.first = self.run()

    def phases(self, first_s: float) -> dict[str, float]:
        return dict(self.seconds)

    def timed(self, count: int) -> float:
        run = self.run
        began = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - began) / count


def bits(tensor: torch.Tensor) -> numpy.ndarray:
    """Its memory as NumPy has it: bfloat16, which NumPy has no type for, as 16-bit integers."""
    tensor = tensor.detach().contiguous()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def from_bits(array, bfloat16: bool) -> torch.Tensor:
    copy = numpy.array(array)
    return torch.from_numpy(copy.view(numpy.int16)).view(torch.bfloat16) if bfloat16 else torch.from_numpy(copy)


def onnx_bytes(module, args) -> bytes:
    with torch.no_grad():
        program = torch.onnx.export(module, args, dynamo=True, verbose=False)
    return program.model_proto.SerializeToString()


class OnnxRuntimeStep(ExportedStep):
    def build(self) -> None:
        import onnxruntime

        with self.phase("export"):
            model = onnx_bytes(self.module, self.args)
        with self.phase("compile"):
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
            options.log_severity_level = 3
            self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        wanted = [declared.name for declared in self.session.get_inputs()]
        if len(wanted) != len(self.args):
            raise NotExpressible(f"the ONNX model has {len(wanted)} inputs, the row {len(self.args)}")
        if any("bfloat16" in declared.type for declared in self.session.get_outputs()):
            raise NotExpressible("an output of bfloat16, which ONNX Runtime's Python has no type for")
        self.feed = {name: self._value(onnxruntime, arg) for name, arg in zip(wanted, self.args)}

    def _value(self, onnxruntime, arg: torch.Tensor):
        if arg.dtype == torch.bfloat16:
            import onnx

            return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits(arg), onnx.TensorProto.BFLOAT16)
        return onnxruntime.OrtValue.ortvalue_from_numpy(bits(arg))

    def run(self):
        return self.session.run_with_ort_values(None, self.feed)

    def values(self) -> list[torch.Tensor]:
        return [torch.from_numpy(numpy.array(value.numpy())) for value in self.first]


class OpenVinoStep(ExportedStep):
    def build(self) -> None:
        import openvino

        self.bfloat16 = openvino.Type.bf16
        with self.phase("export"):
            model = self._convert(openvino)
        halves = any(arg.dtype == torch.bfloat16 for arg in self.args)
        config = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
                  "INFERENCE_PRECISION_HINT": "bf16" if halves else "f32"}  # fmt: skip
        with self.phase("compile"):
            compiled = openvino.Core().compile_model(model, "CPU", config)
        self.request = compiled.create_infer_request()
        if len(compiled.inputs) != len(self.args):
            raise NotExpressible(f"the model has {len(compiled.inputs)} inputs, the row {len(self.args)}")
        self.feed = {k: self._tensor(openvino, arg) for k, arg in enumerate(self.args)}

    def _convert(self, openvino):
        """The exported program is what OpenVINO is quicker with; what it has no translation for there may have one in ONNX."""
        try:
            return openvino.convert_model(export(self.module, self.args))
        except Exception as direct:
            try:
                with tempfile.TemporaryDirectory() as folder:
                    path = pathlib.Path(folder) / "row.onnx"
                    path.write_bytes(onnx_bytes(self.module, self.args))
                    return openvino.convert_model(path)
            except Exception as through_onnx:
                raise NotExpressible(f"exported program: {_last_line(direct)}; ONNX: {_last_line(through_onnx)}") from direct

    def _tensor(self, openvino, arg: torch.Tensor):
        if arg.dtype == torch.bfloat16:
            return openvino.Tensor(bits(arg), list(arg.shape), openvino.Type.bf16)
        return bits(arg)

    def run(self):
        return self.request.infer(self.feed, share_inputs=True, share_outputs=True)

    def values(self) -> list[torch.Tensor]:
        self.first = None  # views of the request's memory
        return [from_bits(t.data, t.element_type == self.bfloat16) for t in self.request.output_tensors]


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


def unflatten(values, like):
    """A flat list as the structure of eager's values; as it is where the number of leaves differs, which the judge then says."""
    leaves, spec = pytree.tree_flatten(like)
    flat = pytree.tree_leaves(values)
    return pytree.tree_unflatten(flat, spec) if len(flat) == len(leaves) else values
