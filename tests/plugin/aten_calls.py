"""ATen calls recorded from PyTorch's own operator samples, and graphs made of them.

Every OpInfo sample is run in eager under a dispatch mode, functionalised for the forward and
plainly with its backward, and each call of an overload of interest is kept with its arguments.
A recorded call is replayed alone or many in one FX graph, so that a row of aten.def meets
exactly the arguments PyTorch's tests give it, without tracing.
"""

import collections
import dataclasses
import itertools
import operator
import re
import warnings
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import ROOT

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
ATEN_DEF = ROOT / "torch_plugin" / "aten" / "aten.def"
_ROW = re.compile(r"^\s*(ATEN_OP|ATEN_LIBRARY|ATEN_STEP)\(\s*\"(aten\.[^\"]+)\"", re.MULTILINE)
MAX_ELEMENTS = 200_000


def table_rows() -> dict[str, str]:
    """Overload -> kind of its row in aten.def; empty when the file is not there."""
    if not ATEN_DEF.exists():
        return {}
    return {overload: kind for kind, overload in _ROW.findall(ATEN_DEF.read_text())}


@dataclasses.dataclass
class Call:
    overload: torch._ops.OpOverload
    args: tuple
    kwargs: dict
    source: str  # the OpInfo it came from

    @property
    def dtype(self) -> torch.dtype | None:
        """Of the first tensor argument; of a factory, what it is asked for."""
        tensor = next(iter(self.tensors()), None)
        return tensor.dtype if tensor is not None else self.kwargs.get("dtype", torch.float32)

    def tensors(self) -> list[torch.Tensor]:
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def key(self):
        def describe(leaf):
            if isinstance(leaf, torch.Tensor):
                return (leaf.dtype, tuple(leaf.shape), leaf.stride())
            return repr(leaf)

        leaves, spec = pytree.tree_flatten((self.args, self.kwargs))
        return (str(self.overload), tuple(map(describe, leaves)), str(spec))

    def run(self, convert=lambda leaf: leaf) -> list:
        """Flat outputs of a fresh eager run from `convert`ed arguments."""
        args, kwargs = pytree.tree_map(convert, (self.args, self.kwargs))
        return pytree.tree_leaves(self.overload(*args, **kwargs))

    def __str__(self) -> str:
        shapes = ", ".join(f"{t.dtype}{list(t.shape)}{t.stride()}" for t in self.tensors())
        plain = [a for a in self.args if not isinstance(a, (torch.Tensor, list, tuple))]
        return f"{self.overload}({shapes}; {plain}, {self.kwargs}) from {self.source}"


class _Recorder(TorchDispatchMode):
    def __init__(self, wanted: set[str], limit: int):
        super().__init__()
        self.wanted, self.limit, self.source = wanted, limit, ""
        self.calls: dict[str, list[Call]] = collections.defaultdict(list)
        self.keys: set = set()
        self.counts: collections.Counter = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = str(func)
        if name in self.wanted and not func._schema.is_mutable:
            self._keep(name, Call(func, args, kwargs, self.source))
        return func(*args, **kwargs)

    def _keep(self, name: str, call: Call) -> None:
        tensors = call.tensors()
        plain = all(t.layout == torch.strided and type(t) is torch.Tensor for t in tensors)
        if not plain or sum(t.numel() for t in tensors) > MAX_ELEMENTS or call.dtype not in DTYPES:
            return
        dense = all(t.is_contiguous() for t in tensors)
        group = (name, call.dtype, dense)
        if self.counts[group] >= self.limit or (key := call.key()) in self.keys:
            return
        self.keys.add(key)
        self.counts[group] += 1
        copy = lambda leaf: _copy(leaf) if isinstance(leaf, torch.Tensor) else leaf
        call.args, call.kwargs = pytree.tree_map(copy, (call.args, call.kwargs))
        self.calls[name].append(call)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Same values and strides in own memory; the sample may be changed after the recording."""
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        return tensor.clone()
    storage = tensor.untyped_storage().clone()
    fresh = torch.empty(0, dtype=tensor.dtype)
    return fresh.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def record(wanted: set[str], samples: int = 8, limit: int = 5) -> dict[str, list[Call]]:
    """Calls of the `wanted` overloads, at most `limit` per dtype and per dense or not."""
    from torch.testing._internal.common_methods_invocations import op_db

    recorder = _Recorder(wanted, limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for opinfo, dtype in itertools.product(op_db, DTYPES):
            if dtype in opinfo.supported_dtypes("cpu"):
                recorder.source = opinfo.full_name
                _record_opinfo(recorder, opinfo, dtype, samples)
    return recorder.calls


def _record_opinfo(recorder, opinfo, dtype, count) -> None:
    for grad in (False, True):
        if grad and not (dtype.is_floating_point and opinfo.supports_autograd):
            return
        torch.manual_seed(0)
        try:
            # Not opinfo.sample_inputs: for error messages it walks the stack at every sample.
            samples = opinfo.sample_inputs_func(opinfo, "cpu", dtype, grad)
            for sample in itertools.islice(samples, count):
                _record_sample(recorder, opinfo, sample, grad)
                _record_sample(recorder, opinfo, sample.noncontiguous(), grad)
        except Exception:  # PyTorch's own sample generators fail for some ops and dtypes
            continue


def _record_sample(recorder, opinfo, sample, grad) -> None:
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def run(*tensors):
        for index, tensor in zip(where, tensors):
            leaves[index] = tensor
        first, args, kwargs = pytree.tree_unflatten(leaves, spec)
        results = pytree.tree_leaves(opinfo(first, *args, **kwargs))
        return [leaf for leaf in results if isinstance(leaf, torch.Tensor)]

    def run_backward(*tensors):
        outputs = [out for out in run(*tensors) if out.requires_grad]
        inputs = [t for t in tensors if t.requires_grad]
        torch.autograd.grad(outputs, inputs, [_tangent(o) for o in outputs], allow_unused=True)

    tensors = [leaves[i] for i in where]
    try:
        with recorder:
            if grad:
                run_backward(*tensors)
            else:
                torch.func.functionalize(run)(*tensors)
    except Exception:  # CUDA-only, data-dependent or without backward: not ours to judge
        pass


def _tangent(output: torch.Tensor) -> torch.Tensor:
    ramp = torch.arange(1, output.numel() + 1, dtype=torch.float32).view(output.shape)
    return (ramp % 7 - 3.5).to(output.dtype)


# --- graphs of calls ------------------------------------------------------------------------


def graph_of(calls: list[Call]) -> tuple[torch.fx.GraphModule, list, list[int]]:
    """One graph with a node per call: module, inputs, and how many outputs each call has."""
    graph, inputs, outputs, counts = torch.fx.Graph(), [], [], []
    nodes: list[tuple[Call, tuple, dict]] = []
    for call in calls:
        names = iter(range(len(inputs), len(inputs) + 10_000))

        def place(leaf):
            if not isinstance(leaf, torch.Tensor):
                return leaf
            inputs.append(leaf)
            return graph.placeholder(f"arg{next(names)}")

        nodes.append((call, *pytree.tree_map(place, (call.args, call.kwargs))))
    for call, args, kwargs in nodes:
        node = graph.call_function(call.overload, args, kwargs)
        flat = _output_nodes(graph, node, call)
        outputs += flat
        counts.append(len(flat))
    graph.output(outputs)
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    FakeTensorProp(module, mode).propagate(*inputs)
    return module, inputs, counts


def _output_nodes(graph: torch.fx.Graph, node: torch.fx.Node, call: Call) -> list:
    with torch.random.fork_rng():
        result = call.overload(*call.args, **call.kwargs)
    if isinstance(result, torch.Tensor):
        return [node]
    return [
        graph.call_function(operator.getitem, (node, index)) if leaf is not None else None
        for index, leaf in enumerate(result)
    ]


def fake_is_like_eager(call: Call) -> bool:
    """Whether the fake kernel's results have eager's dtypes, shapes and strides."""
    mode = FakeTensorMode()
    fakes = lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf
    try:
        with torch.random.fork_rng():
            real = call.run()
        with mode:
            fake = call.run(fakes)
    except Exception:  # its own kind of refusal: the graph of the call will meet it too
        return True
    meta = lambda t: (t.dtype, tuple(t.shape), _telling(t)) if isinstance(t, torch.Tensor) else t
    return [meta(t) for t in real] == [meta(t) for t in fake]


def _telling(tensor: torch.Tensor) -> tuple:
    """Strides of the dims that have some; none where there are no elements."""
    pairs = zip(tensor.shape, tensor.stride())
    return tuple(stride for size, stride in pairs if size > 1) if tensor.numel() else ()


def widen(leaf: Any) -> Any:
    """Arguments of the float64 reference."""
    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
        return leaf.double()
    if leaf in (torch.float32, torch.bfloat16, torch.float16):
        return torch.float64
    return leaf
