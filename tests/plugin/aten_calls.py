"""ATen calls recorded from PyTorch's own operator samples, and graphs made of them.

Every OpInfo sample is run in eager under a dispatch mode, functionalised for the forward and
plainly with its backward, and each call of an overload of interest is kept with its arguments.
A recorded call is replayed alone or many in one FX graph, so that a row of aten.def meets
exactly the arguments PyTorch's tests give it, without tracing.

A row meets many more calls than can be compiled in CI. Of each dtype it keeps the first calls of
different *kinds* (ranks, strided or not, empty, broadcast, other arguments; see Call.kind), as many
as QUOTA says. What is left out is counted.
"""

import collections
import dataclasses
import functools
import itertools
import operator
import re
import warnings
from typing import Any, Callable

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import ROOT

ATEN_DEF = ROOT / "torch_plugin" / "aten" / "aten.def"
_ROW = re.compile(r"^\s*(ATEN_OP|ATEN_DECOMPOSED|ATEN_LIBRARY|ATEN_STEP)\(\s*\"([^\"]+)\"", re.MULTILINE)
MAX_ELEMENTS = 200_000


@dataclasses.dataclass(frozen=True)
class Quota:
    """What is recorded and kept per dtype."""

    kinds: int  # calls kept per row: of the operator itself; half as many of those by hand and of others that call it
    samples: int  # samples run per operator
    strided: bool = False  # also with inputs that have gaps


QUOTA = {
    torch.float32: Quota(6, 10, True), torch.bfloat16: Quota(2, 5), torch.int64: Quota(3, 6, True),
    torch.float64: Quota(1, 3), torch.float16: Quota(1, 3), torch.bool: Quota(2, 4), torch.complex64: Quota(2, 5, True),
    torch.int32: Quota(1, 2), torch.uint8: Quota(1, 2),
}  # fmt: skip
WHOLE = {dtype: Quota(60, 400, True) for dtype in QUOTA}
DTYPES = tuple(QUOTA)
BY_HAND = "by hand"


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

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        """Of the first tensor argument of the highest category (complex, float, integer, bool); of a factory, what
        it is asked for."""
        found = [t.dtype for t in self.tensors()]
        asked = self.kwargs.get("dtype") or torch.float32
        rank = lambda d: 3 if d.is_complex else 2 if d.is_floating_point else d != torch.bool
        return max(found, key=rank) if found else asked

    @functools.cached_property
    def eager(self) -> list:
        """Its results by ATen; of an operator that draws random numbers, see run()."""
        return self.run()

    @functools.cached_property
    def reference(self) -> list | None:
        """The same in float64; None where ATen can't."""
        default = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float64)
            found = self.run(widen)
        except Exception:  # no float64 kernel: eager stands in
            return None
        finally:
            torch.set_default_dtype(default)
        return found if [r is None for r in found] == [e is None for e in self.eager] else None

    @property
    def is_random(self) -> bool:
        return torch.Tag.nondeterministic_seeded in self.overload.tags

    def kind(self) -> tuple:
        """What two calls differ in, if they are of interest beside each other: not sizes and values."""

        def describe(leaf):
            if isinstance(leaf, torch.Tensor):
                return (leaf.dtype, leaf.dim(), leaf.numel() == 0, 1 in leaf.shape, leaf.is_contiguous())
            if isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
                return (type(leaf), leaf if abs(leaf) <= 2 and leaf == int(leaf) else leaf > 0)
            return repr(leaf)

        leaves, spec = pytree.tree_flatten((self.args, self.kwargs))
        return (*map(describe, leaves), str(spec))

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
        result = self.overload(*args, **kwargs)
        return [] if result is None else pytree.tree_leaves(result)  # None: it only raises

    def __str__(self) -> str:
        shapes = ", ".join(f"{t.dtype}{list(t.shape)}{t.stride()}" for t in self.tensors())
        plain = [a for a in self.args if not isinstance(a, (torch.Tensor, list, tuple))]
        return f"{self.overload}({shapes}; {plain}, {self.kwargs}) from {self.source}"


class _Recorder(TorchDispatchMode):
    def __init__(self, wanted: set[str], quota: dict[torch.dtype, Quota]):
        super().__init__()
        self.wanted, self.quota, self.source = wanted, quota, ""
        self.calls: dict[str, list[Call]] = collections.defaultdict(list)
        self.keys: set = set()
        self.kinds: set = set()
        self.kept: collections.Counter = collections.Counter()
        self.left_out: collections.Counter = collections.Counter()  # dtype -> different calls

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)  # what eager refuses is no sample
        name = str(func)
        if name in self.wanted and not func._schema.is_mutable:
            self._keep(name, Call(func, args, kwargs, self.source))
        return result

    def _keep(self, name: str, call: Call) -> None:
        tensors = call.tensors()
        plain = all(t.layout == torch.strided and type(t) is torch.Tensor for t in tensors)
        if name == "aten.native_batch_norm.default" and call.args[5]:
            return  # in training it changes its arguments, which its schema doesn't say
        if not plain or sum(t.numel() for t in tensors) > MAX_ELEMENTS or call.dtype not in self.quota:
            return
        if (key := call.key()) in self.keys:
            return
        self.keys.add(key)
        origin = self.source if self.source == BY_HAND else self._is_itself(name)
        group, kind = (name, call.dtype, origin), (name, call.kind())
        kinds = self.quota[call.dtype].kinds
        if kind in self.kinds or self.kept[group] >= (kinds if origin is True else (kinds + 1) // 2):
            self.left_out[call.dtype] += 1
            return
        self.kinds.add(kind)
        self.kept[group] += 1
        copy = lambda leaf: _copy(leaf) if isinstance(leaf, torch.Tensor) else leaf
        call.args, call.kwargs = pytree.tree_map(copy, (call.args, call.kwargs))
        self.calls[name].append(call)

    def _is_itself(self, name: str) -> bool:
        """Whether what is run is named as the overload is."""
        operator_, packet = self.source.split(".")[-1], name.split(".")[1]
        return operator_ in packet or packet.strip("_") in operator_


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Same values and strides in own memory; the sample may be changed after the recording."""
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        return tensor.clone()
    storage = tensor.untyped_storage().clone()
    fresh = torch.empty(0, dtype=tensor.dtype)
    return fresh.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


@dataclasses.dataclass
class Recorded:
    calls: dict[str, list[Call]]  # by overload
    left_out: collections.Counter  # dtype -> different calls that no row kept


def record(wanted: set[str], quota: dict[torch.dtype, Quota] = QUOTA, direct: Callable | None = None) -> Recorded:
    """Calls of the `wanted` overloads that `direct(dtype)` makes, then those of PyTorch's samples."""
    from torch.testing._internal.common_methods_invocations import op_db

    recorder = _Recorder(wanted, quota)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in quota:
            recorder.source = BY_HAND
            if direct is not None:
                with recorder:
                    direct(dtype)
            for opinfo in op_db:
                if dtype in opinfo.supported_dtypes("cpu"):
                    recorder.source = opinfo.name
                    _record_opinfo(recorder, opinfo, dtype)
    return Recorded(recorder.calls, recorder.left_out)


def record_all(quota: dict[torch.dtype, Quota] = QUOTA) -> Recorded:
    """Of every row of aten.def, with the calls by hand."""
    from plugin.aten_direct import direct_calls
    from plugin.aten_samples import by_hand

    recorded = record(set(table_rows()), quota, direct_calls)
    for name, extra in by_hand().items():
        recorded.calls.setdefault(name, []).extend(extra)
    return recorded


def _record_opinfo(recorder, opinfo, dtype) -> None:
    quota = recorder.quota[dtype]
    for grad in (False, True):
        if grad and not (opinfo.supports_autograd and dtype in opinfo.supported_backward_dtypes("cpu")):
            return
        torch.default_generator.manual_seed(0)  # torch.manual_seed writes down the stack for each kind of device
        try:
            # Not opinfo.sample_inputs: for error messages it walks the stack at every sample.
            samples = opinfo.sample_inputs_func(opinfo, "cpu", dtype, grad)
            for sample in itertools.islice(samples, quota.samples // 2 if grad else quota.samples):
                _record_sample(recorder, opinfo, sample, grad)
                if quota.strided:
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

PLACE = "call.py"  # a node's source is PLACE:<index of its call>


@dataclasses.dataclass
class Built:
    calls: list[Call]
    module: torch.fx.GraphModule
    inputs: list
    outputs: list[int]  # per call, how many


def graph_of(calls: list[Call]) -> Built:
    """One graph with a node per call. Its metas are the fake kernels'."""
    graph, inputs, outputs, counts = torch.fx.Graph(), [], [], []
    mode, nodes = FakeTensorMode(), []
    for call in calls:

        def place(leaf):
            if not isinstance(leaf, torch.Tensor):
                return leaf
            node = graph.placeholder(f"arg{len(inputs)}")
            node.meta["val"] = mode.from_tensor(leaf)
            inputs.append(leaf)
            return node

        nodes.append((call, *pytree.tree_map(place, (call.args, call.kwargs))))
    for index, (call, args, kwargs) in enumerate(nodes):
        node = graph.call_function(call.overload, args, kwargs)
        node.meta["stack_trace"] = f'File "{PLACE}", line {index}'
        fake = lambda leaf: leaf.meta["val"] if isinstance(leaf, torch.fx.Node) else leaf
        with mode:
            node.meta["val"] = call.overload(*torch.fx.node.map_arg(args, fake), **torch.fx.node.map_arg(kwargs, fake))
        flat = _output_nodes(graph, node)
        outputs += flat
        counts.append(len(flat))
    graph.output(outputs)
    return Built(calls, torch.fx.GraphModule(torch.nn.Module(), graph), inputs, counts)


def _output_nodes(graph: torch.fx.Graph, node: torch.fx.Node) -> list:
    result = node.meta["val"]
    if result is None:  # it only raises
        return []
    if isinstance(result, torch.Tensor):
        return [node]
    items = []
    for index, leaf in enumerate(result):
        item = None if leaf is None else graph.call_function(operator.getitem, (node, index))
        if item is not None:
            item.meta["val"] = leaf
        items.append(item)
    return items


def unlike_eager(call: Call) -> str:
    """In what the fake kernel's results differ from eager's: "fake refuses", "dtype", "shape", "strides" or ""."""
    mode = FakeTensorMode()
    fakes = lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf
    try:
        with mode:
            fake = call.run(fakes)
    except Exception:
        return "fake refuses"
    with torch.random.fork_rng():
        real = call.run() if call.is_random else call.eager
    if len(fake) != len(real) or any((f is None) != (r is None) for f, r in zip(fake, real)):
        return "shape"
    pairs = [(f, r) for f, r in zip(fake, real) if isinstance(r, torch.Tensor)]
    telling = {"dtype": lambda t: t.dtype, "shape": lambda t: tuple(t.shape), "strides": _telling}
    return next((name for name, of in telling.items() if any(of(f) != of(r) for f, r in pairs)), "")


def _telling(tensor: torch.Tensor) -> tuple:
    """Strides of the dims that have some; none where there are no elements."""
    pairs = zip(tensor.shape, tensor.stride())
    return tuple(stride for size, stride in pairs if size > 1) if tensor.numel() else ()


def widen(leaf: Any) -> Any:
    """Arguments of the float64 (complex128) reference."""
    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
        return leaf.double()
    if isinstance(leaf, torch.Tensor) and leaf.is_complex():
        return leaf.to(torch.complex128)
    if leaf in (torch.float32, torch.bfloat16, torch.float16):
        return torch.float64
    if leaf is torch.complex64:
        return torch.complex128
    return leaf
