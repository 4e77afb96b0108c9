"""Every use of PyTorch's private Python API, and nothing else. Checked against torch 2.13 and 2.15.

Whatever is only nice to have (log registration) is absent rather than an error on another version.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import os
import types
from typing import Callable

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

__all__ = [
    "FakeTensor",
    "NumberInput",
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
    "guards_of_frame_through",
    "hooks_are_inlined",
    "is_auto_functionalized",
    "is_higher_order",
    "is_nested_int",
    "is_random_call",
    "is_with_effects",
    "keep_nothing_donated",
    "known_constants",
    "known_equalities",
    "lazy_graph_modules",
    "linear_resampling",
    "logger",
    "metadata_of",
    "min_cut_rematerialization_partition",
    "nearest_resampling",
    "no_dispatch_modes",
    "no_new_guards",
    "number_inputs",
    "partitioner_classes",
    "partitioner_settings_changed",
    "plain_tensor_types",
    "quick_trace",
    "resampled_sizes",
    "saved_output_description",
    "size_inputs",
    "statically_known_true",
    "symbol_hint",
    "symbol_range",
    "statistics_in_f32",
    "traced_as",
    "without_casts",
    "written_arguments",
]


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
    """What the tracer found equal, and guards: calls in which it is not go to other graphs; or asserts, of sizes that data decide."""
    env = value.node.shape_env
    said = [guard.expr for guard in env.guards] + [a.expr for asserts in env.deferred_runtime_asserts.values() for a in asserts]
    return [expr for expr in said if isinstance(expr, sympy.Eq)]


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


def code_around_library_modules() -> types.CodeType | None:
    """Dynamo traces PyTorch's own modules (Sequential) from within a function of its own, one for all of them."""
    from torch._dynamo.external_utils import wrap_inline

    return next((c for c in wrap_inline.__code__.co_consts if isinstance(c, types.CodeType) and c.co_name == "inner"), None)


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


def without_casts(decomposition):
    """One of PyTorch's decompositions that does nothing but cast and compute a formula; of float32 the formula alone, which is traced in
    half the time."""
    formula = inspect.unwrap(decomposition)

    @functools.wraps(decomposition)
    def call(*args, **kwargs):
        plain = not kwargs and all(x.dtype is torch.float32 for x in args if isinstance(x, torch.Tensor))
        return (formula if plain else decomposition)(*args, **kwargs)

    return call


def resampled_sizes(sizes, output_size, scale_factors) -> list:
    """Spatial sizes of a resampling's result, by the two ways in which its arguments say them."""
    from torch._decomp.decompositions import upsample_compute_output_size

    return upsample_compute_output_size(sizes, output_size, scale_factors)


def linear_resampling(x, output_size, align_corners, scale_factors):
    """PyTorch's decomposition of upsample_{linear1d,bilinear2d,trilinear3d}.vec."""
    from torch._decomp.decompositions import _upsample_linear_vec

    return _upsample_linear_vec(x, output_size, align_corners, scale_factors)


def nearest_resampling(x, output_size, scale_factors):
    """PyTorch's decomposition of upsample_nearest{1,2,3}d.vec."""
    from torch._decomp.decompositions import _upsample_nearest_vec

    return _upsample_nearest_vec(x, output_size, scale_factors)


@contextlib.contextmanager
def traced_as(instead: dict):
    """Inside, tracing takes these overloads apart by these functions, or leaves them whole (None), before autograd sees them: ahead of any
    table, as PyTorch does where it has registered a decomposition as an overload's Python kernel for autograd. What they are without
    them are the C++ kernels and their meta functions. Not thread-safe by itself: Dynamo calls backends under a lock of its own."""
    autograd, composite = torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd
    found = [(op, key, op.py_kernels.pop(key, None)) for op in instead for key in (autograd, composite)]
    try:
        for op, key, kernel in found:
            if instead[op] is not None and (kernel is not None or key == autograd):
                op.py_kernels[key] = instead[op]
        for op in instead:
            op._dispatch_cache.clear()
        yield
    finally:
        for op, key, kernel in found:
            op.py_kernels.pop(key, None)
            if kernel is not None:
                op.py_kernels[key] = kernel
        for op in instead:
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
        with _symbols_in_graphs():
            return aot_autograd(**kwargs)(gm, example_inputs)
    kwargs["bw_compiler"] = functools.partial(_untraced_backward, kwargs["bw_compiler"])
    counters = torch._dynamo.utils.counters["aot_autograd"]
    counters["total"] += 1
    with _no_graph_texts(), _symbols_in_graphs():
        compiled = aot_module_simplified(gm, example_inputs, **kwargs)
    counters["ok"] += 1
    return torch._dynamo.disable(compiled, reason="do not trace AOT-compiled graph")


def untraced(function):
    """What is called from C++, perhaps by a backward() in a function that Dynamo traces: its frames are not Dynamo's to trace then."""
    return torch._dynamo.disable(function, reason="tenon's own")


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


@contextlib.contextmanager
def _symbols_in_graphs():
    """Inside, AOTAutograd's pass that makes tensors of floating numbers finds each symbol of theirs in the graph. It looks for a node that
    is the symbol, as Dynamo's size inputs are, which passed_sizes takes out; a numel is none. Under Dynamo's lock, as traced_as()."""
    from torch._functorch._aot_autograd import graph_compile

    name = "_apply_tensorify_python_scalars"
    apply = getattr(graph_compile, name, None)
    if apply is None:
        yield
        return

    def with_symbols(gm: torch.fx.GraphModule):
        _add_symbols(gm.graph)
        return apply(gm)

    setattr(graph_compile, name, with_symbols)
    try:
        yield
    finally:
        setattr(graph_compile, name, apply)


def _add_symbols(graph: torch.fx.Graph) -> None:
    """Nodes for the symbols of which the graph's floating numbers are made, where it has none: sizes of inputs."""
    values = [(node, node.meta.get("val")) for node in graph.nodes]
    wanted = {symbol for _, value in values if isinstance(value, torch.SymFloat) for symbol in value.node.expr.free_symbols}
    wanted -= {value.node.expr for _, value in values if isinstance(value, (torch.SymInt, torch.SymFloat))}
    if not wanted:
        return
    inputs = [(node, value) for node, value in values if node.op == "placeholder"]
    with graph.inserting_after(inputs[-1][0]):
        for node, value in inputs:
            for axis, size in enumerate(value.shape if isinstance(value, FakeTensor) else ()):
                if isinstance(size, torch.SymInt) and size.node.expr in wanted:
                    wanted.remove(size.node.expr)
                    graph.call_function(torch.ops.aten.sym_size.int, (node, axis)).meta["val"] = size


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


# Norms in training whose fake kernels give means and deviations in the input's type -> the arguments that are parameters or statistics.
_NORMS = {
    torch.ops.aten.native_layer_norm.default: (2, 3),
    torch.ops.aten.native_group_norm.default: (1, 2),
    torch.ops.aten._native_batch_norm_legit.no_stats: (1, 2),
    torch.ops.aten._native_batch_norm_legit_functional.default: (1, 2, 3, 4),
}


@contextlib.contextmanager
def statistics_in_f32():
    """Context: tracing sees means and deviations of bf16 and f16 inputs in f32 where a parameter is, as ATen's kernels on the CPU return
    them. Rounded to the input's type they would make the backward wrong by a tenth. Under Dynamo's lock, as traced_as()."""
    dispatch = vars(FakeTensorMode)["dispatch"]

    def call(self, func, types, args=(), kwargs=None):
        result = dispatch(self, func, types, args, kwargs or {})
        parameters = _NORMS.get(func)
        if parameters is None or args[0].dtype not in (torch.bfloat16, torch.float16) or args[0].device.type != "cpu":
            return result
        mixed = any(isinstance(p, torch.Tensor) and p.dtype is torch.float32 for p in (args[k] for k in parameters))
        if not mixed or result[1].dim() == 1 and 0 in result[1].shape:  # not in training: batch norm has none
            return result
        with self:
            wide = [torch.empty_like(statistic, dtype=torch.float32) for statistic in result[1:3]]
        return (result[0], *wide, *result[3:])

    FakeTensorMode.dispatch = call
    try:
        yield
    finally:
        FakeTensorMode.dispatch = dispatch


# The versions of PyTorch whose functions quick_trace() replaces; tests/plugin/test_quick_trace.py compares what they trace.
_QUICK_VERSIONS = ((2, 13), (2, 15))


def quick_trace(symbolic: bool):
    """Context: tracing leaves out what only symbolic sizes, logs and annotations of operators want, and asks less often how a batch norm's
    results lie in memory. Graphs are the same but for a detach after torch.arange and the like; nodes have no meta["tensor_meta"] and
    meta["torch_fn"]. symbolic: nothing changes. Under Dynamo's lock, as traced_as()."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return contextlib.nullcontext() if symbolic or version not in _QUICK_VERSIONS else _quick_trace()


@contextlib.contextmanager
def _quick_trace():
    from torch._decomp import decomposition_table
    from torch._subclasses import fake_tensor, functional_tensor
    from torch.fx.experimental import proxy_tensor

    would_have_decomposed, track_tensor = proxy_tensor.autograd_would_have_decomposed, proxy_tensor.track_tensor

    def composite(func, arguments):
        return _is_composite(func) and would_have_decomposed(func, arguments)

    def track(tensor, proxy, *, constant, tracer):
        if type(tensor) is not FakeTensor or tensor._has_symbolic_sizes_strides:
            return track_tensor(tensor, proxy, constant=constant, tracer=tracer)
        return proxy_tensor.set_proxy_slot(tensor, tracer, proxy_tensor._ProxyTensor(proxy, constant))

    def set_meta(proxy, value):
        proxy.node.meta["val"] = proxy_tensor.extract_val(value, include_real=proxy.node.op == "placeholder")
        return proxy

    # Of functionalization's views that are made again after a write: which annotations they get.
    keep_annotations = lambda self, args, kwargs: None
    replaced = [
        (proxy_tensor, "autograd_would_have_decomposed", composite),
        (proxy_tensor, "track_tensor", track),
        (proxy_tensor, "set_meta", set_meta),
        (proxy_tensor, "TorchFunctionMetadataMode", lambda tracer: contextlib.nullcontext()),
        (functional_tensor.FunctionalTensorMode, "_sync_view_replay_annotations", keep_annotations),
        (functional_tensor, "pytree", _QuickTrees),
        (fake_tensor.FakeTensorMode, "dispatch", _remembering(fake_tensor.FakeTensorMode.dispatch)),
    ]
    if not fake_tensor.log.isEnabledFor(logging.DEBUG):
        replaced.append((fake_tensor.log, "debug", lambda *args, **kwargs: None))
    shapes = {op: _quick_shapes(decomposition_table[op], quick) for op, quick in _batch_norm_shapes().items()}
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in replaced]
    tables = {op: decomposition_table[op] for op in shapes}
    try:
        for owner, name, function in replaced:
            setattr(owner, name, function)
        decomposition_table.update(shapes)
        yield
    finally:
        decomposition_table.update(tables)
        for owner, name, function in before:
            if function is None:  # its class's
                delattr(owner, name)
            else:
                setattr(owner, name, function)


@functools.cache
def _is_composite(func) -> bool:
    return func._can_decompose()


class _QuickTrees:
    """torch.utils._pytree for arguments of operators: tuples, lists and dicts of tensors and numbers."""

    from torch.utils import _pytree

    @classmethod
    def tree_map_only(cls, kind, function, tree):
        def go(value):
            if isinstance(value, kind):
                return function(value)
            form = type(value)
            if form is tuple:
                return tuple([go(v) for v in value])
            if form is list:
                return [go(v) for v in value]
            if form is dict:
                return {key: go(v) for key, v in value.items()}
            return value if form in _LEAVES else cls._pytree.tree_map_only(kind, function, value)

        return go(tree)

    @classmethod
    def tree_leaves(cls, tree):
        leaves: list = []

        def go(value):
            form = type(value)
            if form is tuple or form is list:
                for v in value:
                    go(v)
            elif form is dict:
                for v in value.values():
                    go(v)
            elif form in _LEAVES:
                leaves.append(value)
            else:
                leaves.extend(cls._pytree.tree_leaves(value))

        go(tree)
        return leaves

    tree_flatten = staticmethod(_pytree.tree_flatten)
    tree_unflatten = staticmethod(_pytree.tree_unflatten)
    tree_map = staticmethod(_pytree.tree_map)


_CONSTANTS = frozenset((int, float, bool, type(None), str, torch.dtype, torch.device, torch.layout, torch.memory_format))
_LEAVES = _CONSTANTS | {torch.Tensor, FakeTensor}


def _remembering(dispatch):
    """FakeTensorMode.dispatch that remembers, for one trace, what operators return that depends on shapes alone, and detaches at once.
    PyTorch's own cache asks for ten times as much."""
    from torch._subclasses.fake_tensor import FakeTensorMode, in_kernel_invocation_manager

    known: dict = {}
    detach = torch.ops.aten.detach.default

    def call(self, func, types, args=(), kwargs=None):
        key = None
        quick = self.cache_enabled and not self.cache_crosscheck_enabled and not self.propagate_real_tensors
        if quick and func is detach and type(args[0]) is FakeTensor and args[0].fake_mode is self and _is_static(args[0]):
            with in_kernel_invocation_manager(self):
                made = func(args[0])
            return FakeTensor(self, made, args[0].fake_device)
        if quick and _depends_on_shapes(func):
            parts: list = [func, torch.is_inference_mode_enabled()]
            if _add_key(parts, args, self) and (not kwargs or _add_key(parts, kwargs, self)):
                key = tuple(parts)
        if key is not None and (seen := known.get(key)) is not None:
            shape, stride, dtype, device = seen
            with in_kernel_invocation_manager(self):
                made = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            FakeTensorMode.cache_hits += 1
            return FakeTensor(self, made, device)
        result = dispatch(self, func, types, args, kwargs or {})
        if key is not None and _is_fresh(result):
            known[key] = result.shape, result.stride(), result.dtype, result.device
        return result

    return call


def _is_static(value) -> bool:
    plain = value.layout is torch.strided and not value._has_symbolic_sizes_strides and not value._is_zerotensor()
    return plain and value.constant is None


def _is_fresh(result) -> bool:
    if type(result) is not FakeTensor or not _is_static(result):
        return False
    return not (result.requires_grad or result.is_conj() or result.is_neg() or result._is_view() or result.storage_offset())


@functools.cache
def _depends_on_shapes(func) -> bool:
    """An operator of PyTorch's, of tensors, whose one result is a tensor of its own, of a shape that follows from its arguments'."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return False
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
    schema = func._schema
    aliases = any(a.alias_info is not None for a in (*schema.arguments, *schema.returns))
    one_tensor = len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor"
    one_tensor = one_tensor and bool(schema.arguments) and str(schema.arguments[0].type) in ("Tensor", "List[Tensor]")
    lifts = "lift" in schema.name or schema.name == "aten::_unsafe_view"
    return one_tensor and not aliases and not lifts and not tags & set(func.tags) and not _is_composite(func)


def _add_key(parts: list, arguments, mode) -> bool:
    """Appends what tells these arguments from others to `parts`; False: they are no plain tensors and numbers."""
    form = type(arguments)
    parts.append(form)
    parts.append(len(arguments))
    if form is dict:
        parts.extend(arguments)
        arguments = arguments.values()
    for value in arguments:
        form = type(value)
        if form is FakeTensor:
            if value.fake_mode is not mode or not _is_static(value):
                return False
            if value.is_conj() or value.is_neg() or value.requires_grad:
                return False
            parts += (form, value.shape, value.stride(), value.dtype, value.storage_offset(), value.device)
        elif form is tuple or form is list:
            if not _add_key(parts, value, mode):
                return False
        elif form in _CONSTANTS:
            parts += (form, repr(value) if form is float else value)  # -0.0, nan
        else:
            return False
    return True


def _quick_shapes(decomposition, quick):
    """What a mode of fake tensors asks for the results' shapes: quick(*arguments) where it knows them, else `decomposition`."""

    @functools.wraps(decomposition)
    def call(*args, **kwargs):
        results = None if kwargs else quick(*args)
        return decomposition(*args, **kwargs) if results is None else results

    return call


@functools.cache
def _batch_norm_shapes() -> dict:
    aten = torch.ops.aten

    def quick(x, *channels) -> bool:
        plain = all(t is None or t.dtype is torch.float32 and t.is_contiguous() and t.shape == x.shape[1:2] for t in channels)
        return plain and x.dtype is torch.float32 and x.dim() >= 2 and x.is_contiguous() and x.device.type == "cpu" and x.numel() > 0

    def forward(x, weight, bias, mean, variance, training, momentum, eps):
        if training is not True or mean is None or variance is None or not quick(x, weight, bias, mean, variance):
            return None
        return x.new_empty(x.shape), *(x.new_empty(x.shape[1:2]) for _ in range(4))

    def backward(gradient, x, weight, mean, variance, saved_mean, saved_invstd, training, eps, mask):
        known = training is True and saved_mean is not None and saved_invstd is not None and gradient.shape == x.shape
        if not known or not quick(gradient) or not quick(x, weight, saved_mean, saved_invstd):
            return None
        channels = x.shape[1:2]
        return x.new_empty(x.shape), *(x.new_empty(channels) if wanted else None for wanted in mask[1:])

    return {aten._native_batch_norm_legit_functional.default: forward, aten.native_batch_norm_backward.default: backward}


@dataclasses.dataclass
class NumberInput:
    """A float of Python's that is an input of Dynamo's graph: the call makes a tensor of it, of which the graph takes the item()."""

    node: torch.fx.Node
    name: str  # Dynamo's, of where it comes from
    value: float  # in this call
    closed_over: bool  # a global, what a function closes over, an attribute: no argument of the call nor a part of one
    symbol: str  # ShapeEnv's name
    source: object = dataclasses.field(repr=False)

    def make_constant(self) -> None:
        """Its value instead of it, guarded; the caller passes what the graph has placeholders for, which is one less then."""
        from torch._dynamo.guards import GuardBuilder, install_guard

        install_guard(self.source.make_guard(GuardBuilder.CONSTANT_MATCH))
        for item in list(self.node.users):
            item.replace_all_uses_with(self.value)
            self.node.graph.erase_node(item)
        self.node.graph.erase_node(self.node)


def number_inputs(gm: torch.fx.GraphModule) -> tuple[object, list[NumberInput]]:
    """(code, numbers) while Dynamo traces `code` with every number an input, dynamic=True; (None, []) where that is not known."""
    output = _graph_of_frame(gm)
    if output is None or torch._dynamo.config.assume_static_by_default:
        return None, []
    from torch._dynamo.source import AttrSource, LocalSource

    code = output.root_tx.f_code

    def is_closed_over(source) -> bool:
        while (base := getattr(source, "base", None)) is not None:
            if isinstance(source, AttrSource):
                return True
            source = base
        return not (isinstance(source, LocalSource) and source.is_input and not source.is_derefed_cell_contents)

    found = []
    for node in gm.graph.find_nodes(op="placeholder"):
        argument = node.meta.get("grapharg")
        value = getattr(node.meta.get("example_value"), "item_memo", None)
        if not getattr(argument, "pass_arg_as_tensor", False) or any(u.target != "item" for u in node.users):
            continue
        if isinstance(value, torch.SymFloat):
            source = argument.source
            found.append(NumberInput(node, source.name, value.node.hint, is_closed_over(source), str(value.node.expr), source))
    return code, found


def _graph_of_frame(gm: torch.fx.GraphModule):
    """Dynamo's output, while it compiles `gm` as all of a frame's graph: what the caller passes is what `gm` has placeholders for when the
    backend returns. None where that is not known."""
    try:
        from torch._dynamo.symbolic_convert import InstructionTranslator

        output = InstructionTranslator.current_tx().output
        return output if output.graph is gm.graph else None
    except (AttributeError, ImportError):
        return None


def size_inputs(gm: torch.fx.GraphModule) -> list[tuple[torch.fx.Node, torch.fx.Node, int]]:
    """The placeholders of Dynamo's graph that are sizes of plain tensors for which it has placeholders too: (number, tensor, axis)."""
    if _graph_of_frame(gm) is None:
        return []
    from torch._dynamo.source import TensorProperty, TensorPropertySource

    placeholders = gm.graph.find_nodes(op="placeholder")
    sources = {node: getattr(node.meta.get("grapharg"), "source", None) for node in placeholders}
    tensors = {sources[n].name: n for n in placeholders if type(n.meta.get("example_value")) is FakeTensor and sources[n] is not None}
    found = []
    for node, source in sources.items():
        if not isinstance(source, TensorPropertySource) or source.prop is not TensorProperty.SIZE:
            continue
        tensor, value = tensors.get(source.base.name), node.meta.get("example_value")
        if tensor is not None and isinstance(value, torch.SymInt) and not is_nested_int(value):
            found.append((node, tensor, source.idx))
    return found


class _Through:
    """An object of which some attributes are others."""

    def __init__(self, of, **instead):
        self.__dict__.update(instead, _of=of)

    def __getattr__(self, name: str):
        return getattr(self._of, name)


@functools.cache
def _guard_makers_ask():
    """From now on Dynamo's guards of expressions go through what a frame's compile has asked for; False: not with this version."""
    try:
        from torch._dynamo.guards import GuardBuilder

        make = GuardBuilder.add_python_lambda_leaf_guard_to_root
    except (AttributeError, ImportError):
        return False

    @functools.wraps(make)
    def make_through(self, code_parts, *args, **kwargs):
        through = getattr(torch._guards.CompileContext.try_get(), "tenon_guards_through", None)
        if through is None:
            return make(self, code_parts, *args, **kwargs)
        root = self.guard_manager.root
        add = lambda guard, *rest: root.add_epilogue_lambda_guard(through(code_parts, guard), *rest)
        manager = _Through(self.guard_manager, root=_Through(root, add_epilogue_lambda_guard=add))
        return make(_Through(self, guard_manager=manager), code_parts, *args, **kwargs)

    GuardBuilder.add_python_lambda_leaf_guard_to_root = make_through
    return True


def guards_of_frame_through(through: Callable) -> None:
    """In the frame that Dynamo compiles now a guard on sizes becomes through(expressions, guard): both take the frame's locals."""
    context = torch._guards.CompileContext.try_get()
    if context is not None and _guard_makers_ask():
        context.tenon_guards_through = through


@contextlib.contextmanager
def known_constants(symbols: list[str]):
    """Inside, AOTAutograd takes these SymFloats for constants that Dynamo knows of; else it would have Dynamo trace again."""
    state = getattr(torch._dynamo.symbolic_convert, "TensorifyState", None)
    new = [] if state is None else [s for s in symbols if not state.should_specialize(s)]
    for symbol in new:
        state.specialize(symbol)
    try:
        yield
    finally:  # they are another graph's symbols in the next compile
        for symbol in new:
            state.force_specializations.discard(symbol)


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
