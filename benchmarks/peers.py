"""The peers a row is timed against, one table: name -> how a step of a row is made by it."""

import dataclasses
import functools
import importlib
import importlib.util
from typing import Any, Callable

from environment import HERE

EVERY_MODE = ("infer", "grad", "train", "optimizer")


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    what: str
    make: Callable[[Any], Any]  # a row -> a step (step.py says what that has)
    imports: tuple[str, ...] = ()  # modules that it needs, loaded before anything is timed
    modes: tuple[str, ...] = EVERY_MODE
    computes: bool = True  # the row's values; else it is a bar, neither judged nor anyone's best peer
    strides: bool = False  # its results' strides are judged too


PEERS: dict[str, Peer] = {}


def add(*args, **fields) -> None:
    peer = Peer(*args, **fields)
    PEERS[peer.name] = peer


def available() -> dict[str, str]:
    """Peer -> empty, or why it cannot run here."""
    return {name: _lacking(peer) for name, peer in PEERS.items()}


def _lacking(peer: Peer) -> str:
    absent = [name for name in peer.imports if not _found(name)]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if peer.name == "tenon":
        try:
            import torch_tenon

            torch_tenon.stats()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # of a package that a dotted name begins with
        return False


def make(name: str, row):
    return PEERS[name].make(row)


def _by_torch(backend: str = "", compiler: str = "", **options):
    def make_step(row):
        import torch
        from step import Step

        if not backend:
            return Step(row)
        chosen = _alloc_backend() if backend == "aot_alloc" else backend
        return Step(row, lambda target: torch.compile(target, backend=chosen, dynamic=False, **options), compiler)

    return make_step


def _later(module: str, name: str):
    """A step class of a module that loads another runtime."""
    return lambda row: getattr(importlib.import_module(module), name)(row)


_DYNAMO, _INDUCTOR = ("torch._dynamo",), ("torch._dynamo", "torch._inductor.compile_fx")
_EXPORT = ("torch._dynamo", "torch.export._trace")

add("eager", "PyTorch without a compiler; beside itself, it shows what chance does", _by_torch())
add("tenon", 'torch.compile(backend="tenon")', _by_torch("tenon", "tenon"), ("torch._dynamo", "torch_tenon.backend"), strides=True)
add("tenon_frozen", 'the same with options={"freeze": True}', _by_torch("tenon", "tenon", options={"freeze": True}),
    ("torch._dynamo", "torch_tenon.backend"), modes=("infer",), strides=True)  # fmt: skip
add("inductor", "torch.compile()", _by_torch("inductor", "inductor"), _INDUCTOR)
add("inductor_frozen", "the same with freezing=True: weights are constants",
    _by_torch("inductor", "inductor", options={"freezing": True}), _INDUCTOR, modes=("infer",))  # fmt: skip
add("jax", "the ATen graph by jax.numpy under jax.jit", _later("jax_step", "JaxStep"), ("jax", *_EXPORT),
    modes=("infer", "train", "optimizer"))  # fmt: skip
add("onnxruntime", "torch.onnx.export(dynamo=True), CPU provider", _later("exported", "OnnxRuntimeStep"),
    ("onnxruntime", "onnx", "onnxscript", *_EXPORT), modes=("infer",))  # fmt: skip
add("openvino", "openvino.convert_model of the exported program, else of its ONNX file", _later("exported", "OpenVinoStep"),
    ("openvino", *_EXPORT), modes=("infer",))  # fmt: skip
add("aot_alloc", "AOTAutograd with nothing behind it but the allocation of its outputs", _by_torch("aot_alloc"), _DYNAMO, computes=False)


@functools.cache
def _alloc_backend():
    """AOTAutograd with nothing behind it but the allocation of its outputs, in C++."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.utils.cpp_extension import load

    extension = load("alloc_only", [str(HERE / "alloc_only.cc")], extra_cflags=["-O2"])

    def allocate(graph_module, example_inputs):
        (output,) = [n for n in graph_module.graph.nodes if n.op == "output"]
        values = [node.meta["val"] for node in output.args[0]]
        plan = [(tuple(v.shape), tuple(v.stride()), v.dtype) for v in values]
        run = extension.make(plan)

        def boxed(inputs):
            return run(inputs)

        boxed._boxed_call = True
        return boxed

    return aot_autograd(
        fw_compiler=allocate,
        bw_compiler=allocate,
        inference_compiler=allocate,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
