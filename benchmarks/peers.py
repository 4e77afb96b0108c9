"""The peers a row is timed against: name -> how a model is compiled by it."""

import functools
import pathlib
from typing import Callable

import torch

HERE = pathlib.Path(__file__).resolve().parent


def available() -> dict[str, str]:
    """Peer -> empty, or why it cannot run here."""
    found = {"eager": "", "inductor": "", "tenon": "", "aot_alloc": ""}
    try:
        import torch_tenon

        torch_tenon.stats()
    except Exception as error:
        found["tenon"] = f"{type(error).__name__}: {error}"
    return found


def compiled(peer: str, model: Callable) -> Callable:
    if peer == "eager":
        return model
    backend = _alloc_backend() if peer == "aot_alloc" else peer
    return torch.compile(model, backend=backend, dynamic=False)


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
