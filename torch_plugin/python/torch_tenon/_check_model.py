"""`torch_tenon.testing.check_model`: one model under eager, a backend and float64.

How the reference is made: a deep copy of the model and the inputs with floating tensors in
float64 (complex in complex128, integers kept), run with float64 as default dtype and with
every request for a narrower float dtype inside the model answered by float64. If the model has
no float64 run (an op without such a kernel), the report says so and eager stands in, as
`compare` describes.

All three runs start from the same seed. A model that draws *normal* or *uniform* numbers draws
other ones in float64, so its reference is not comparable and the case fails as vacuous;
dropout's masks are the same. Inputs and buffers that the call changes are compared as well.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import time
from typing import Any, Callable

import torch
import torch._dynamo
from torch._dynamo.utils import counters
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ._accuracy import Leaf, Report, compare, leaf_names

_NARROW = (torch.float32, torch.float16, torch.bfloat16)


@dataclasses.dataclass
class Capture:
    """What Dynamo made of one model: graphs, breaks, and which ops stayed outside of graphs."""

    graphs: int = 0
    breaks: int = 0
    break_reasons: list[str] = dataclasses.field(default_factory=list)
    ops_outside: int = 0


@dataclasses.dataclass
class _Run:
    outputs: Any
    grads: dict[str, torch.Tensor | None]
    state: dict[str, torch.Tensor]
    untouched: set[str]


@dataclasses.dataclass
class ModelReport(Report):
    """`Report` plus what the backend captured, beside the baseline backend's capture."""

    backend: str = ""
    baseline: str = ""
    capture: Capture = dataclasses.field(default_factory=Capture)
    baseline_capture: Capture | None = None
    eager_ops: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)
    call_seconds: list[float] = dataclasses.field(default_factory=list)
    call_cpu_seconds: list[float] = dataclasses.field(default_factory=list)

    @property
    def coverage(self) -> float:
        """Share of the ops that eager's forward dispatches which ran inside the graphs."""
        return 1.0 - self.capture.ops_outside / max(self.eager_ops, 1)

    def failures_beyond_rows(self) -> list[str]:
        if self.baseline_capture is None:
            return []
        problems = []
        for what in ("graphs", "breaks"):
            mine, theirs = getattr(self.capture, what), getattr(self.baseline_capture, what)
            if mine != theirs:
                problems.append(f"{mine} {what}, {self.baseline} has {theirs}")
        return problems

    def summary(self, limit: int = 6) -> str:
        return "\n".join([self._head(), super().summary(limit)])

    def __str__(self) -> str:
        return "\n".join([self._head(), super().__str__()])

    def _head(self) -> str:
        seconds = ", ".join(f"{s:.2f}" for s in self.call_seconds)
        head = (
            f"{self.backend}: {self.capture.graphs} graphs, {self.capture.breaks} breaks, "
            f"{self.coverage:.1%} of {self.eager_ops} eager ops inside, calls took {seconds} s"
        )
        return "\n".join([head, *self.notes])


def check_model(
    model: torch.nn.Module | Callable,
    args: tuple = (),
    kwargs: dict | None = None,
    backend: str | Callable = "tenon",
    train: bool = False,
    options: dict | None = None,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    seed: int = 0,
    calls: int = 2,
    dynamic: bool | None = None,
    baseline: str | None = "aot_eager",
    vacuous_ok: bool = False,
    check_strides: bool = True,
    measure: contextlib.AbstractContextManager | None = None,
) -> ModelReport:
    """Runs `model` in eager, float64 and under `backend`; returns the judged report.

    train=False runs without gradients; train=True adds a backward pass from `loss(output)`
    (default: the output's `.loss`, else a fixed random projection of every float output) and
    compares the gradient of every parameter and of every input that requires one. Train or
    eval *mode* is the caller's business. The compiled model is called `calls` times from the same
    state and the last call, made inside `measure`, is judged. A `backend` may be a callable, as for torch.compile.
    Graph and break counts must equal those of `baseline` (None: not compared).
    """
    if calls < 2:
        raise ValueError(f"check_model: calls={calls}; the first compiles, a later one is judged")
    setup = _Setup(model, args, kwargs or {}, train, loss or _default_loss, seed)
    eager_counter = _OpCounter()
    eager = setup.run(eager_counter)
    notes: list[str] = []
    reference = _reference_run(setup, notes)
    candidate, capture, seconds, cpu_seconds = _compiled_run(
        setup, backend, options, dynamic, calls, measure or contextlib.nullcontext()
    )
    baseline_capture = None
    if baseline is not None:
        nothing = contextlib.nullcontext()
        baseline_capture = _compiled_run(setup, baseline, None, dynamic, calls, nothing)[1]
    return ModelReport(
        rows=_judge(candidate, eager, reference, vacuous_ok, check_strides),
        backend=backend if isinstance(backend, str) else getattr(backend, "__name__", "backend"),
        baseline=baseline or "",
        capture=capture,
        baseline_capture=baseline_capture,
        eager_ops=eager_counter.count,
        notes=notes,
        call_seconds=seconds,
        call_cpu_seconds=cpu_seconds,
    )


def _judge(candidate, eager, reference, vacuous_ok: bool, check_strides: bool) -> list[Leaf]:
    changed = sorted(set(eager.state) - (eager.untouched & candidate.untouched))
    extra = [*eager.grads, *(f"after:{name}" for name in changed)]

    def leaves(run: _Run | None):
        if run is None:
            return None
        return [run.outputs, [run.grads[n] for n in eager.grads], [run.state[n] for n in changed]]

    return compare(
        leaves(candidate),
        leaves(eager),
        leaves(reference),
        names=leaf_names(eager.outputs) + extra,
        # Gradients may truly vanish (a bias in front of a normalisation), outputs may not.
        vacuous_ok=lambda name: vacuous_ok or name in extra,
        check_strides=check_strides,
    ).rows


class _Setup:
    """A model, its inputs and how to run one judged step from the same starting state."""

    def __init__(self, model, args, kwargs, train, loss, seed):
        self.model, self.args, self.kwargs = model, args, kwargs
        self.train, self.loss, self.seed = train, loss, seed

    def fresh(self, convert=lambda tensor: tensor):
        model = copy.deepcopy(self.model)
        if isinstance(model, torch.nn.Module):
            model._apply(convert)
        cloner = _Cloner(convert)
        return model, *pytree.tree_map(cloner, (self.args, self.kwargs))

    def run(self, around) -> _Run:
        model, args, kwargs = self.fresh()
        return self.step(model, model, args, kwargs, around)

    def step(self, callee, model, args, kwargs, around=contextlib.nullcontext()) -> _Run:
        before = {name: t.detach().clone() for name, t in _state(model, args, kwargs).items()}
        torch.manual_seed(self.seed)
        grads = {}
        with torch.set_grad_enabled(self.train):
            with around:
                outputs = callee(*args, **kwargs)
            if self.train:
                self.loss(outputs).backward()
                for name, tensor in _differentiable(model, args, kwargs).items():
                    grads[f"grad:{name}"] = tensor.grad
        state = _state(model, args, kwargs)
        untouched = {n for n, t in state.items() if _bit_equal(t, before[n])}
        state = {name: tensor.detach().clone() for name, tensor in state.items()}
        return _Run(outputs, grads, state, untouched)


class _Cloner:
    """Copies inputs with their strides, offsets and aliasing: those are part of the case."""

    def __init__(self, convert):
        self.convert, self.tensors, self.storages = convert, {}, {}

    def __call__(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in self.tensors:
            self.tensors[id(leaf)] = self._copy(leaf.detach()).requires_grad_(leaf.requires_grad)
        return self.tensors[id(leaf)]

    def _copy(self, source: torch.Tensor) -> torch.Tensor:
        plain = source.layout == torch.strided and not source.is_neg() and not source.is_conj()
        if not plain or type(source) is not torch.Tensor:
            return self.convert(source.clone())
        key = (source.untyped_storage().data_ptr(), source.dtype)
        if key not in self.storages:
            flat = torch.empty(0, dtype=source.dtype).set_(source.untyped_storage())
            self.storages[key] = self.convert(flat.clone())
        flat = self.storages[key]
        return flat.as_strided(source.shape, source.stride(), source.storage_offset())


def _to_fp64(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _state(model, args, kwargs) -> dict[str, torch.Tensor]:
    """Everything a call may change in place, by name."""
    state = {f"input{k}": t for k, t in _named_inputs(args, kwargs)}
    if isinstance(model, torch.nn.Module):
        state |= {f"buffer:{name}": tensor for name, tensor in model.named_buffers()}
    return state


def _named_inputs(args, kwargs):
    paths, _ = pytree.tree_flatten_with_path((args, kwargs))
    return [(pytree.keystr(p), t) for p, t in paths if isinstance(t, torch.Tensor)]


def _differentiable(model, args, kwargs) -> dict[str, torch.Tensor]:
    found = {f"input{k}": t for k, t in _named_inputs(args, kwargs) if t.requires_grad}
    if isinstance(model, torch.nn.Module):
        found |= {name: p for name, p in model.named_parameters() if p.requires_grad}
    return found


def _bit_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(torch.nan_to_num(a.detach()), torch.nan_to_num(b.detach()))


def _default_loss(outputs: Any) -> torch.Tensor:
    direct = getattr(outputs, "loss", None)
    if isinstance(direct, torch.Tensor):
        return direct
    # A plain sum would have a zero gradient behind every normalisation.
    total = torch.zeros((), dtype=torch.float64)
    for index, leaf in enumerate(pytree.tree_leaves(outputs)):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            with torch._C.DisableTorchFunction():  # the reference's mode would draw other numbers
                generator = torch.Generator().manual_seed(1000 + index)
                weight = torch.randn(leaf.shape, generator=generator, dtype=torch.float32)
                weight = weight.to(leaf.dtype)
            total = total + (leaf * weight).sum(dtype=torch.float64)
    return total


class _WidenFloats(torch.overrides.TorchFunctionMode):
    """Answers requests for narrower float dtypes with float64, so the reference stays exact."""

    _METHODS = {
        torch.Tensor.float: torch.Tensor.double,
        torch.Tensor.half: torch.Tensor.double,
        torch.Tensor.bfloat16: torch.Tensor.double,
    }

    def __torch_function__(self, func, types, args=(), kwargs=None):
        widen = lambda leaf: torch.float64 if leaf in _NARROW else leaf
        args = tuple(widen(a) if isinstance(a, torch.dtype) else a for a in args)
        kwargs = {
            k: widen(v) if isinstance(v, torch.dtype) else v for k, v in (kwargs or {}).items()
        }
        return self._METHODS.get(func, func)(*args, **kwargs)


def _reference_run(setup: _Setup, notes: list[str]) -> _Run | None:
    default = torch.get_default_dtype()
    model, args, kwargs = setup.fresh(_to_fp64)
    try:
        torch.set_default_dtype(torch.float64)
        with _WidenFloats():
            return setup.step(model, model, args, kwargs)
    except (RuntimeError, NotImplementedError) as error:
        notes.append(f"no float64 reference, eager stands in: {str(error).splitlines()[0]}")
        return None
    finally:
        torch.set_default_dtype(default)


class _OpCounter(TorchDispatchMode):
    """Counts dispatched ATen ops. Compiled code keeps running under it."""

    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.count = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def _hiding(backend: str | Callable, options: dict | None) -> Callable:
    """`backend`, its graphs hidden from dispatch modes: what a mode still sees ran outside."""
    inner = torch._dynamo.lookup_backend(backend) if isinstance(backend, str) else backend
    kwargs = {"options": options} if options else {}

    def compile_graph(graph_module, example_inputs):
        compiled = inner(graph_module, example_inputs, **kwargs)

        def run(*inputs):
            with _disable_current_modes():
                return compiled(*inputs)

        return run

    return compile_graph


def _compiled_run(setup, backend, options, dynamic, calls, measure):
    """Runs `calls` steps, each from the starting state; the last is counted and returned."""
    torch._dynamo.reset()
    counters.clear()
    model, _, _ = setup.fresh()
    compiled = torch.compile(model, backend=_hiding(backend, options), dynamic=dynamic)
    initial = copy.deepcopy(_state(model, (), {}))
    counter, seconds, cpu_seconds = _OpCounter(), [], []
    for index in range(calls):
        last = index == calls - 1
        with torch.no_grad():
            for name, tensor in _state(model, (), {}).items():
                tensor.copy_(initial[name])
        if isinstance(model, torch.nn.Module):
            model.zero_grad(set_to_none=True)
        _, args, kwargs = setup.fresh()
        began, began_cpu = time.perf_counter(), time.process_time()
        with measure if last else contextlib.nullcontext():
            around = counter if last else contextlib.nullcontext()
            run = setup.step(compiled, model, args, kwargs, around)
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - began_cpu)
    breaks = counters["graph_break"]
    capture = Capture(
        graphs=counters["stats"]["unique_graphs"],
        breaks=sum(breaks.values()),
        break_reasons=[reason.splitlines()[0] for reason in breaks],
        ops_outside=counter.count,
    )
    return run, capture, seconds, cpu_seconds
