"""Every use of PyTorch's private Python API, and nothing else. Checked against torch 2.11 - 2.13.

Whatever is only nice to have (log registration) is absent rather than an error on another version.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
from typing import Callable

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

__all__ = [
    "FakeTensor",
    "TrainingFacts",
    "aot_compile",
    "backward_at_once",
    "compilation_metrics",
    "decompositions_for",
    "dense_kernel",
    "fake_mode_of",
    "fill_metas",
    "forward_metadata",
    "free_unbacked_symbols",
    "frozen_inputs",
    "functional_trace",
    "graph_module",
    "hooks_are_inlined",
    "is_auto_functionalized",
    "is_higher_order",
    "is_nested_int",
    "is_random_call",
    "is_with_effects",
    "keep_nothing_donated",
    "known_equalities",
    "lazy_graph_modules",
    "linear_resampling",
    "logger",
    "metadata_of",
    "min_cut_rematerialization_partition",
    "no_dispatch_modes",
    "no_new_guards",
    "partitioner_classes",
    "partitioner_settings_changed",
    "plain_tensor_types",
    "resampled_sizes",
    "saved_output_description",
    "symbol_hint",
    "symbol_range",
    "traced_as",
    "written_arguments",
]

TESTED_VERSIONS = ((2, 11), (2, 13))  # first and last, inclusive


def plain_tensor_types() -> tuple[type, ...]:
    """Tensor types that are dense memory and nothing else, while tracing or not."""
    return (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)


def is_higher_order(target) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator)


def is_with_effects(node: torch.fx.Node) -> bool:
    """A call wrapped to order side effects: with_effects(token, op, *args) -> (token, *results)."""
    return is_higher_order(node.target) and node.target.name() == "with_effects"


def is_auto_functionalized(node: torch.fx.Node) -> bool:
    """An operator that changes arguments, made a function: (op, **arguments, _all_bases=[...]) -> (*results, *new values of the bases)."""
    return (
        is_higher_order(node.target)
        and node.target.name() == "auto_functionalized_v2"
        and isinstance(node.args[0], torch._ops.OpOverload)
    )


def dense_kernel(target):
    """What runs a higher-order operator in eager, as a function of plain tensors. KeyError: it has none."""
    return target.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]


def functional_trace(function, values, decompositions) -> torch.fx.GraphModule:
    """A graph of ATen operators without mutations; `values` are fake tensors and numbers."""
    from torch.fx.experimental.proxy_tensor import make_fx

    functional = torch.func.functionalize(function, remove="mutations")
    return make_fx(functional, decomposition_table=decompositions)(*values)


def is_random_call(node: torch.fx.Node) -> bool:
    """A draw whose generator's state is saved before, or restored: (op, *args) -> (state, result), (state, op, *args) -> result."""
    return is_higher_order(node.target) and node.target.name() in ("run_and_save_rng_state", "run_with_rng_state")


def symbol_range(value: torch.SymInt, symbol: sympy.Symbol) -> tuple[int, int]:
    """What the tracer knows of a symbol's values; 0 and 2**40 where it knows nothing."""
    known = value.node.shape_env.var_to_range.get(symbol)
    if known is None:
        return 0, _LARGEST_SIZE
    lower, upper = (int(bound) if bound.is_Integer else None for bound in (known.lower, known.upper))
    lower = -_LARGEST_SIZE if lower is None else max(lower, -_LARGEST_SIZE)
    return lower, _LARGEST_SIZE if upper is None else min(upper, _LARGEST_SIZE)



def symbol_hint(value: torch.SymInt, symbol: sympy.Symbol) -> int:
    """What the symbol was when the tracer met it; 0 where it stands for no number, or data decide it."""
    env = value.node.shape_env
    seen = getattr(env, "backed_var_to_val", None)  # torch 2.13; var_to_val before
    hint = (env.var_to_val if seen is None else seen).get(symbol)
    return int(hint) if hint is not None and hint.is_Integer else 0


def known_equalities(value: torch.SymInt) -> list[sympy.Eq]:
    """What the tracer found equal, and guards: calls in which it is not go to other graphs."""
    return [guard.expr for guard in value.node.shape_env.guards if isinstance(guard.expr, sympy.Eq)]


_LARGEST_SIZE = 1 << 40


def is_nested_int(value: torch.SymInt) -> bool:
    """Stands for the lengths of a jagged tensor; no number."""
    return value.node.is_nested_int()


def no_new_guards(value: torch.SymInt):
    """Inside, comparisons of sizes don't narrow what the graph is good for."""
    return value.node.shape_env.suppress_guards()


def compilation_metrics() -> list:
    """Dynamo's last compiles (64): co_filename, co_firstlineno, co_name, recompile_reason."""
    from torch._dynamo.utils import get_compilation_metrics

    return get_compilation_metrics()


def fake_mode_of(graph: torch.fx.Graph):
    """The mode that the graph was traced with: a context manager."""
    from torch._guards import detect_fake_mode

    mode = detect_fake_mode([node.meta.get("val") for node in graph.find_nodes(op="placeholder")])
    return contextlib.nullcontext() if mode is None else mode


def written_arguments(target: torch._ops.OpOverload, arguments: dict, bases: list) -> dict | None:
    """Of such a call: by argument that is changed, which base it is and how it lies in it; its description is taken out of `arguments`.
    None: this version of PyTorch says so in another way."""
    try:
        from torch._higher_order_ops.auto_functionalize import get_mutable_args, read_view_information_from_args
    except ImportError:
        return None
    names, types = get_mutable_args(target)
    return read_view_information_from_args(names, types, arguments, bases)


def decompositions_for(overloads) -> dict:
    """PyTorch's decompositions of these overloads; the ones that this version lacks are left out."""
    from torch._decomp import decomposition_table, get_decompositions

    known = [op for op in overloads if op in decomposition_table]
    return get_decompositions(known)


def resampled_sizes(sizes, output_size, scale_factors) -> list:
    """Spatial sizes of a resampling's result, by the two ways in which its arguments say them."""
    from torch._decomp.decompositions import upsample_compute_output_size

    return upsample_compute_output_size(sizes, output_size, scale_factors)


def linear_resampling(x, output_size, align_corners, scale_factors):
    """PyTorch's decomposition of upsample_{linear1d,bilinear2d,trilinear3d}.vec."""
    from torch._decomp.decompositions import _upsample_linear_vec

    return _upsample_linear_vec(x, output_size, align_corners, scale_factors)


@contextlib.contextmanager
def traced_as(instead: dict):
    """Inside, tracing takes these overloads apart by these functions, or leaves them whole (None): PyTorch has registered decompositions
    of them as their Python kernels for autograd, ahead of any table. What they are without them are the C++ kernels and their meta
    functions. Not thread-safe by itself: Dynamo calls backends under a lock of its own."""
    overloads = tuple(instead)
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    taken = [(op, key, op.py_kernels.pop(key)) for op in overloads for key in keys if key in op.py_kernels]
    try:
        for op, key, _ in taken:
            if instead[op] is not None:
                op.py_kernels[key] = instead[op]
        for op in overloads:
            op._dispatch_cache.clear()
        yield
    finally:
        for op, key, kernel in taken:
            op.py_kernels[key] = kernel
        for op in overloads:
            op._dispatch_cache.clear()


def no_dispatch_modes():
    """Context: Python dispatch modes (fake tensors, tracing) are off inside."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def fill_metas(gm: torch.fx.GraphModule, example_inputs) -> None:
    """Gives every node of an ATen graph its meta["val"], from real inputs."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    FakeTensorProp(gm, mode).propagate(*example_inputs)


def frozen_inputs() -> tuple[int, ...]:
    """While AOTAutograd compiles an inference graph: its inputs that are parameters and buffers of modules; () where that isn't known."""
    metadata = forward_metadata()
    if metadata is None:
        return ()
    mutated = set(getattr(metadata, "mutated_inp_runtime_indices", ()))
    return tuple(i for i in metadata.static_input_indices if i not in mutated)


def forward_metadata():
    """While AOTAutograd calls a compiler: what it knows of the graph's inputs and outputs (ViewAndMutationMeta), final once AOTAutograd
    has returned; None where it doesn't say."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    return context.fw_metadata if context is not None else None


def min_cut_rematerialization_partition(*args, **kwargs):
    """PyTorch's partitioner. Its first call imports Inductor's pattern matcher."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition as partition

    return partition(*args, **kwargs)


@functools.cache
def partitioner_classes():
    """PyTorch's classes of operators, sets of packets: fusible_ops, recomputable_ops, view_ops."""
    from torch._functorch.partitioners import get_default_op_list

    return get_default_op_list()


# Settings of torch._functorch.config that change the cut, with the values that the partitioner of C++ implements.
_PARTITIONER_SETTINGS = {
    "activation_memory_budget": 1.0,
    "aggressive_recomputation": False,
    "ban_recompute_long_fusible_chains": True,
    "ban_recompute_materialized_backward": True,
    "ban_recompute_not_in_allowlist": True,
    "ban_recompute_reductions": True,
    "ban_recompute_used_far_apart": True,
    "cse": True,
    "debug_partitioner": False,
    "enable_activation_offloading": False,
    "functionalize_rng_ops": False,
    "is_non_builtin_to_include": False,
    "max_dist_from_bw": 1000,
    "recompute_views": False,
    "treat_parameters_as_free_to_save": True,
    "_sync_decision_cross_ranks": False,
}


def partitioner_settings_changed() -> str:
    """The first setting that asks for another cut; "": none. What this version hasn't got isn't changed."""
    config = torch._functorch.config
    return next((name for name, value in _PARTITIONER_SETTINGS.items() if getattr(config, name, value) != value), "")


def saved_output_description(index: int, unchecked: bool):
    """How AOTAutograd describes what a forward saves (meta["desc"] of its output)."""
    from torch._functorch._aot_autograd import descriptors

    kind = "SavedForBackwardsNoVcCheckAOTOutput" if unchecked else "SavedForBackwardsAOTOutput"
    return getattr(descriptors, kind, descriptors.SavedForBackwardsAOTOutput)(index)


def graph_module(root: torch.fx.GraphModule, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """With the attributes of `root` that the graph names; lazy inside of lazy_graph_modules()."""
    from torch.fx._lazy_graph_module import _make_graph_module

    return _make_graph_module(root, graph)


def lazy_graph_modules():
    """Context: graphs get Python code when it is asked for, as under Inductor; a compile asks for none, but makes some modules."""
    from torch.fx._lazy_graph_module import _use_lazy_graph_module

    return _use_lazy_graph_module(torch._dynamo.config.use_lazy_graph_module)


def aot_compile(gm: torch.fx.GraphModule, example_inputs, **kwargs):
    """torch._dynamo.backends.common.aot_autograd(**kwargs)(gm, example_inputs) without what nobody asked for: the import of Inductor's
    debugging, and the printing of each graph for a log that isn't kept."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import aot_module_simplified

    nested = any(isinstance(x, (list, tuple, dict)) for x in example_inputs)
    if nested or os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1":
        return aot_autograd(**kwargs)(gm, example_inputs)
    kwargs["bw_compiler"] = functools.partial(_untraced_backward, kwargs["bw_compiler"])
    counters = torch._dynamo.utils.counters["aot_autograd"]
    counters["total"] += 1
    with _no_graph_texts():
        compiled = aot_module_simplified(gm, example_inputs, **kwargs)
    counters["ok"] += 1
    return torch._dynamo.disable(compiled, reason="do not trace AOT-compiled graph")


def _untraced_backward(compiler, *args):
    """Neither the compiler of a backward nor the backward is Dynamo's to trace."""
    compiled = torch._dynamo.disable(compiler, reason="do not trace backward compiler function")(*args)
    return torch._dynamo.disable(compiled, reason="do not trace generated backwards pass")


# Functions of AOTAutograd that print graphs -> what they return where no log is on.
_GRAPH_PRINTERS = {"_log_joint_graph": None, "_log_fw_bw_graphs": (None, None)}


@contextlib.contextmanager
def _no_graph_texts():
    """Inside, AOTAutograd doesn't print joint graph, forward and backward (3% of an LSTM's first call) unless a log or its cache takes
    them. Other versions of PyTorch may have other functions: nothing is changed there. Under Dynamo's lock, as traced_as()."""
    from torch._functorch._aot_autograd import graph_compile
    from torch._logging._internal import trace_log

    loggers = [getattr(graph_compile, name, None) for name in ("aot_joint_log", "aot_graphs_log")]
    wanted = any(log is None or log.isEnabledFor(logging.INFO) for log in loggers)
    wanted = wanted or any(type(handler).__name__ != "LazyTraceHandler" or _traces() for handler in trace_log.handlers)
    wanted = wanted or getattr(torch._functorch.config, "force_autograd_cache", False)
    found = {} if wanted else {name: getattr(graph_compile, name) for name in _GRAPH_PRINTERS if hasattr(graph_compile, name)}
    try:
        for name in found:
            setattr(graph_compile, name, functools.partial(_print_nothing, _GRAPH_PRINTERS[name]))
        yield
    finally:
        for name, function in found.items():
            setattr(graph_compile, name, function)


def _traces() -> bool:
    return bool(os.environ.get("TORCH_TRACE"))


def _print_nothing(result, *args, **kwargs):
    return result


@contextlib.contextmanager
def metadata_of(effects):
    """Inside, AOTAutograd collects its metadata (what is written, what aliases) of a function that writes the same inputs, makes tensors
    like the outputs and does nothing else, instead of running the graph a first time. effects: pure_graphs.effects_of; None: all as it
    is. Under Dynamo's lock, as traced_as()."""
    from torch._functorch import aot_autograd

    name = "run_functionalized_fw_and_collect_metadata"
    collect = getattr(aot_autograd, name, None)
    if effects is None or collect is None:
        yield
        return

    def make(*inputs):
        if effects.written:
            torch._foreach_zero_([inputs[k] for k in effects.written])
        return [_like(value) for value in effects.outputs]

    setattr(aot_autograd, name, lambda function, **kwargs: collect(make, **kwargs))
    try:
        yield
    finally:
        setattr(aot_autograd, name, collect)


def _like(value):
    """Of the same type, sizes and strides; with a history where `value` requires gradients."""
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return torch.ops.aten.clone.default(made.requires_grad_(), memory_format=torch.preserve_format) if value.requires_grad else made


def backward_at_once():
    """Context: AOTAutograd gives a training graph's backward to its compiler together with the forward."""
    return torch._functorch.config.patch(force_non_lazy_backward_lowering=True)


def keep_nothing_donated(metadata) -> None:
    """The backward frees nothing that somebody else holds, so AOTAutograd's wrapper needn't refuse retain_graph=True."""
    if metadata is not None and getattr(metadata, "bw_donated_idxs", None):
        metadata.bw_donated_idxs = []


def hooks_are_inlined() -> bool:
    """The saved_tensors_hooks that are in effect are graphs, which AOTAutograd has put into forward and backward."""
    from torch._functorch._aot_autograd import utils

    hooks = getattr(utils, "top_saved_tensors_hooks", None)
    return hooks is not None and utils.saved_tensors_hooks_are_inlineable(hooks())


def _mark_dynamic():
    """What AOTAutograd's wrapper tells Dynamo of outputs with: mark(tensor, dims=set)."""
    from torch._functorch._aot_autograd import runtime_wrappers

    return getattr(runtime_wrappers, "mark_dynamo_propagated_dynamic_indices", None)


@dataclasses.dataclass
class TrainingOutput:
    argument: int  # it is this argument; -1: the forward's
    differentiable: bool
    mark: Callable[[torch.Tensor], None] | None  # tells Dynamo which sizes of it change


class TrainingFacts:
    """What ViewAndMutationMeta says of a training graph, in the terms of docs/architecture/autograd.md."""

    def __init__(self, metadata):
        self._metadata = metadata
        self.num_inputs, self.num_outputs = len(metadata.input_info), len(metadata.output_info)
        self.written = frozenset(metadata.mutated_graph_handled_indices_seen_by_autograd)
        self.saved_unchecked = getattr(metadata, "num_tensors_saved_with_no_vc_check", 0) or 0
        self.saved_numbers = metadata.num_symints_saved_for_bw or 0
        self.nondeterministic = metadata.deterministic is False

    def why_stock(self) -> str:
        """Why AOTAutograd's wrapper is needed; "": it isn't."""
        m = self._metadata
        for what, count in {
            "an input that autograd sees is written, or its sizes are": m.num_mutated_inp_runtime_indices,
            "outputs are views of one another": m.num_intermediate_bases,
            "opaque objects that the backward needs": getattr(m, "num_opaque_objects_saved_for_bw", 0),
            "effects with an order": len(m.tokens),
            "effects with an order in the backward": m.num_backward_tokens,
            "random state as an input": m.is_rng_op_functionalized or getattr(m, "num_graphsafe_rng_states", 0),
            "the graph changes the grad mode": m.grad_enabled_mutation is not None,
            "outputs of dynamic sizes, in this version of PyTorch": bool(m.dynamic_outputs) and _mark_dynamic() is None,
            "the backward writes an input": m.indices_of_inputs_that_requires_grad_with_mutations_in_bw,
        }.items():
            if count:
                return what
        for metas in (m.subclass_inp_meta, m.subclass_fw_graph_out_meta, m.subclass_tangent_meta):
            if any(type(meta).__name__ != "PlainTensorMeta" for meta in metas):
                return "tensor subclasses"
        for index, info in enumerate(m.output_info):
            if reason := self._why_not_output(info):
                return f"output {index} {reason}"
        return ""

    def _why_not_output(self, info) -> str:
        kind = info.output_type.name
        if kind not in ("non_alias", "unsafe_view_alias", "is_input"):
            return {"alias_of_input": "is a view of an input", "custom_function_view": "is a view made by a custom function"}.get(
                kind, "is a view of another output"
            )
        if not issubclass(info.raw_type, (torch.Tensor, torch.SymInt, type(None))):
            return f"is a {info.raw_type.__name__}"
        return "requires gradients without a history" if info.requires_grad != self._differentiable(info) else ""

    @staticmethod
    def _differentiable(info) -> bool:
        return getattr(info, "requires_grad_for_backward", info.requires_grad)

    def outputs(self) -> list[TrainingOutput]:
        """Where why_stock() has no reason."""
        return [
            TrainingOutput(info.base_idx, False, self._mark(info)) if info.output_type.name == "is_input" else
            TrainingOutput(-1, self._differentiable(info) and issubclass(info.raw_type, torch.Tensor), self._mark(info))
            for info in self._metadata.output_info
        ]  # fmt: skip

    def _mark(self, info) -> Callable[[torch.Tensor], None] | None:
        return functools.partial(_mark_dynamic(), dims=info.dynamic_dims) if self._metadata.dynamic_outputs and info.dynamic_dims else None

    def has_edge(self, index: int, gradient: bool) -> bool:
        """Autograd goes on to an input that gets no gradient only if it is a leaf, as with AOTAutograd's wrapper."""
        return gradient or self._metadata.input_info[index].is_leaf


@functools.cache
def logger() -> logging.Logger:
    """The "tenon" logger, known to TORCH_LOGS where this version lets a third party register."""
    try:
        from torch._logging import _internal

        if not _internal.log_registry.is_log("tenon"):
            _internal.register_log("tenon", "tenon")
    except (ImportError, AttributeError, TypeError):
        pass
    return logging.getLogger("tenon")
