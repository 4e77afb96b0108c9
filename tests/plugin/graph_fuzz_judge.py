"""Judges what the executable of a random graph (graph_fuzz.py) does, against ATen, node by node."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import re
from typing import Any, Callable

import torch

from plugin.graph_fuzz_graph import Compiled, Views
from plugin.graph_fuzz_ops import Grain
from plugin.graph_fuzz_program import Program, call, count_of, make_inputs, needed_by, resolve, run_by_aten, size_in, widened


# Graphs that are the eager program's, and say so.
BY_ATEN = "the write-back of v\\d+ reads (an input that is written back too|a view of an input that was written back before)"


def difference(program: Program, compiled_by: Callable = Compiled) -> str:
    """What tenon does otherwise than ATen; "": nothing. Raises what the compile raises."""
    if program.hints:
        from plugin import graph_fuzz_symbols

        return graph_fuzz_symbols.difference(program, compiled_by)
    values = run_by_aten(dataclasses.replace(program, copies=[]), make_inputs(program, program.number))
    compiled = compiled_by(program, values)
    if compiled.tier != "native" and not re.search(BY_ATEN, compiled.reason):
        return f"the graph is no native one: {compiled.reason}"
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    absolute = any("as_strided" in i.op.name for i in program.body)  # counts from where memory begins, so that is part of the graph
    for number, (seed, shift, alone) in enumerate(((0, 0, False), (1, 0, True), (2, 0 if absolute else 5, False), (0, 0, True))):
        what = one_call(program, compiled, program.number + seed, {}, shift, alone and not program.copies, kept)
        if what:
            return f"call {number}: {what}"
    what = failing_calls(program, compiled)
    if what:
        return what
    for was, now in kept:
        if not same(was, now):
            return "an output of an earlier call has changed since"
    return f"gave up: {compiled.given_up[0]}" if compiled.given_up else ""


def one_call(program: Program, compiled: Any, seed: int, symbols: dict[Any, int], shift: int, alone: bool, kept: list) -> str:
    inputs = make_inputs(program, seed, symbols or None, shift)
    reference = make_inputs(program, seed, symbols or None, shift)
    wide = run_by_aten(program, widened(reference), True)
    wanted = run_by_aten(program, reference)
    given = [inputs[i.id] for i in program.arguments]
    versions = [t._version for t in given]
    arguments = [*(symbols[s] for s in program.numbers), *given]
    if alone:
        inputs, held = {k: None for k in inputs}, given
        given = []
        arguments = [*(symbols[s] for s in program.numbers), *held]
        del held
    found = compiled.executable(arguments)
    given = given or [None] * len(program.arguments)
    usual = functools.partial(_usual_errors, program, seed, symbols, shift)
    into = dict(zip([i.id for i in program.arguments], given))
    what = _judge_outputs(program, found, wanted, wide, into, compiled.tier != "native", usual)
    if what:
        return what
    for i, t, before in zip(program.arguments, given, versions):
        if t is None:
            continue
        why = unlike(t, wanted[i.id], wide[i.id], grain_of(program, i.id), usual=functools.partial(usual, i.id))
        if why:
            return f"input %{i.id} afterwards: {why}"
        if t._version != before:  # who calls counts writes
            return f"input %{i.id}: its version went from {before} to {t._version}"
    outputs = [t for t in found if isinstance(t, torch.Tensor) and not any(t is g for g in given)]
    kept += [(t, t.clone()) for t in outputs if t.numel() < 10_000]
    return ""


def _usual_errors(program: Program, seed: int, symbols: dict[Any, int], shift: int, k: int) -> list[torch.Tensor]:
    """Eager's errors of value k where inputs are a little different, or, if those don't matter (it is made of integers), where
    eager's functions round otherwise."""
    inputs = [make_inputs(program, seed, symbols or None, shift, beside) for beside in range(10)]
    wide = [run_by_aten(program, widened(given), True)[k] for given in inputs]
    errors = []
    for beside in range(1, 10):
        otherwise = {"change": _rounded_otherwise(program, beside)} if torch.equal(wide[beside], wide[0]) else {}
        errors.append(run_by_aten(program, inputs[beside], **otherwise)[k] - wide[beside])
    return errors


def _rounded_otherwise(program: Program, seed: int) -> Callable[[int, torch.Tensor], torch.Tensor]:
    """Every other element of what isn't exact becomes the number beside it, as a function would have it that is wrong by one unit."""
    generator = torch.Generator().manual_seed(seed)

    def change(k: int, result: torch.Tensor) -> torch.Tensor:
        if grain_of(program, k) is not None or not result.is_floating_point():
            return result
        to = torch.where(torch.rand(result.shape, generator=generator) < 0.5, math.inf, -math.inf).to(result.dtype)
        return torch.where(torch.rand(result.shape, generator=generator) < 0.5, torch.nextafter(result, to), result)

    return change


def grain_of(program: Program, k: int) -> Grain:
    """Of a value, and of what an input holds in the end."""
    grains = {i.id: (0, 1.0) for i in program.inputs}
    for i in program.body:
        grains.update(zip(i.results, i.grains))
    for into, value in program.copies:
        grains[into] = grains[value]
    return grains[k]


def _judge_outputs(program: Program, found: list, wanted: dict, wide: dict, given: dict[int, torch.Tensor | None], by_aten: bool,
                   usual: Callable[[int], list[torch.Tensor]]) -> str:
    if len(found) < len(program.outputs):
        return f"{len(found)} outputs, wanted {len(program.outputs)}"
    for place, k in enumerate(program.outputs):
        t = found[place]
        if k is None or t is None:
            if k is not None or t is not None:
                return f"output {place} is {t}, wanted {'None' if k is None else 'a tensor'}"
            continue
        why = unlike(t, wanted[k], wide[k], grain_of(program, k), usual=functools.partial(usual, k))
        if why:
            return f"output {place} (%{k}): {why}"
        if k in given and given[k] is not None and t is not given[k]:
            return f"output {place} is not the input %{k} itself"
        if k not in given and t._base is None and t._version:
            return f"output {place} has version {t._version}"
    return _judge_memory(program, found, wanted, given, by_aten)


def _judge_memory(program: Program, found: list, wanted: dict, given: dict[int, torch.Tensor | None], by_aten: bool) -> str:
    """Who shares memory with whom."""
    views = Views(program, wanted)
    bases = {i.id: i.base for i in program.inputs if i.kind in ("beside", "within")}  # whose storage an input's memory is a part of
    owner: dict[int, Any] = {}
    for k, recipe in zip(program.outputs, views.recipes):
        if k is not None:
            owner[k] = recipe[0] if isinstance(recipe, tuple) else k
            while owner[k] in bases:
                owner[k] = bases[owner[k]]
    constants = {i.id for i in program.inputs if i.kind in ("constant", "literal")}
    where = lambda t: t.untyped_storage().data_ptr()
    for a, k in enumerate(program.outputs):
        if k is None or not found[a].numel() or owner[k] in constants:
            continue
        for b, j in enumerate(program.outputs[:a]):
            if j is not None and found[b].numel() and owner[j] not in constants and k not in given and j not in given:
                if (where(found[a]) == where(found[b])) != (owner[k] == owner[j]):
                    return f"outputs {b} and {a}: {'do not ' if owner[k] == owner[j] else ''}share memory"
        for j, t in given.items():
            if t is None or not t.numel() or k in given:
                continue
            may = _related(program, owner[k], j) or (by_aten and where(wanted[k]) == where(wanted[j]))
            if (where(found[a]) == where(t)) and owner[k] != j and not may:
                return f"output {a} shares memory with input %{j}"
            if owner[k] == j and where(found[a]) != where(t):
                return f"output {a} is no view of input %{j}"
    return ""


def _related(program: Program, a: int, b: int) -> bool:
    """Inputs in one memory."""
    root = {i.id: i.base if i.base >= 0 else i.id for i in program.inputs}
    return a in root and b in root and root[a] == root[b]


def unlike(found: torch.Tensor, wanted: torch.Tensor, wide: torch.Tensor, grain: Grain, check_strides: bool = True,
           usual: Callable[[], list[torch.Tensor]] | None = None) -> str:
    """Eager's errors of few numbers, or of one number many times, are luck: those count too that it has for other inputs close to these
    (`usual`)."""
    if not isinstance(found, torch.Tensor):
        return f"is {type(found).__name__}"
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"is {found.dtype} {list(found.shape)}, wanted {wanted.dtype} {list(wanted.shape)}"
    if (found.is_conj(), found.is_neg()) != (wanted.is_conj(), wanted.is_neg()):
        return f"has the bits {found.is_conj(), found.is_neg()}, wanted {wanted.is_conj(), wanted.is_neg()} (conjugate, negative)"
    if found.numel() > 1 and check_strides:
        strides = lambda t: [stride for size, stride in zip(t.shape, t.stride()) if size > 1]
        if strides(found) != strides(wanted):
            return f"has strides {found.stride()}, wanted {wanted.stride()}"
    if same(found, wanted):
        return ""
    if grain is not None or not (found.is_floating_point() or found.is_complex()):
        return f"differs, though it is exact: {_shown_difference(found, wanted)}"
    from torch_tenon.testing import compare

    plain = [t.resolve_conj().resolve_neg().clone() for t in (found, wanted, wide)]
    reals = [torch.view_as_real(t) if t.is_complex() else t for t in plain]
    reals[1] = _where_eager_has_none(*reals)
    reals[0] = _without_noise(reals[0], reals[1])
    if found.dtype in (torch.bfloat16, torch.float16):  # where eager had no error by luck, one rounding is none
        rounding = torch.finfo(found.dtype).eps * reals[1].double().abs()
        reals[0] = torch.where((reals[0].double() - reals[1].double()).abs() <= rounding, reals[1], reals[0])
    report = compare(*([t] for t in reals), vacuous_ok=True, check_strides=False)
    if report.ok or (usual and _as_exact_as_usual(reals[0], reals[2], usual())):
        return ""
    return f"{'; '.join(report.failures)[:300]}: {_shown_difference(found, wanted)}"


def _as_exact_as_usual(found: torch.Tensor, wide: torch.Tensor, errors: list[torch.Tensor]) -> bool:
    """By the rule, with most of these errors for eager's. More than rounding (another side of a comparison) is none of them."""
    from torch_tenon.testing import compare

    rounding = 1000 * torch.finfo(found.dtype).eps * max(1.0, float(wide.abs().max()))
    errors = [torch.view_as_real(e) if e.is_complex() else e for e in errors]
    small = [e for e in errors if e.shape == wide.shape and bool((e.abs() < rounding).all())]
    eager = [(wide + e).to(found.dtype) for e in small]
    return sum(compare([found], [e], [wide], vacuous_ok=True, check_strides=False).ok for e in eager) > len(errors) / 2


def _where_eager_has_none(found: torch.Tensor, wanted: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    """Eager's, but an infinity or a NaN that float64 has and eager has not (of infinity its vectors of gelu make a NaN)."""
    kind = lambda t: t.isnan() + 2 * t.isposinf() + 3 * t.isneginf()  # noqa: E731
    right = (kind(found) == kind(wide)) & (kind(wide) > 0) & (kind(wanted) != kind(wide))
    return torch.where(right, found, wanted)


def _without_noise(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """What is nothing but rounding in both is the same."""
    wide = torch.float32 if found.dtype == torch.float32 else torch.float64  # eager adds halves up in f64
    little = 100 * torch.finfo(wide).eps
    return torch.where((found.abs() < little) & (wanted.abs() < little), wanted, found)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


def _shown_difference(found: torch.Tensor, wanted: torch.Tensor) -> str:
    differ = ~((found == wanted) | ((found != found) & (wanted != wanted)))
    return f"{int(differ.sum())} of {found.numel()} elements, {found[differ][:4].tolist()} for {wanted[differ][:4].tolist()}"


def failing_calls(program: Program, compiled: Any, symbols: dict[Any, int] | None = None) -> str:
    """With an index out of range ATen's error comes, and inputs stay as they were. Dead nodes need not be run."""
    needed = needed_by(program, sizes=False)
    # A step of ATen's own may be dropped with its error when lowering leaves no reader of it (docs/architecture/framework_steps.md).
    steps = {r for i in program.body if i.op.name == "aten.take.default" and not set(i.results) & set(program.outputs) for r in i.refs()}
    filled = lambda i: count_of([size_in(s, symbols or program.hints) for s in i.shape]) > 0
    indices = [i for i in program.arguments if i.high is not None and i.id not in steps and filled(i)]
    if not indices:
        return ""
    choose = random.Random(program.number + 7)
    i = choose.choice(indices)
    high = size_in(i.high, symbols or program.hints)
    wrong = choose.choice((high, high + 1000, -1 - high))

    def broken() -> dict[int, torch.Tensor]:
        inputs = make_inputs(program, program.number + 3, symbols)
        inputs[i.id].view(-1)[-1] = wrong
        return inputs

    try:
        inputs = make_inputs(program, program.number + 3, symbols)
        if not inputs[i.id].is_contiguous():
            return ""
        run_by_aten(program, broken(), nodes=needed, spare=run_by_aten(program, inputs))
        return ""  # its row is dead, or the operator takes any number
    except Exception as error:
        wanted = error
    inputs = broken()
    given = [inputs[k.id] for k in program.arguments]
    before = [t.clone() for t in given]
    try:
        compiled.executable([*((symbols or {})[s] for s in program.numbers), *given])
    except Exception as error:
        if type(error) is not type(wanted) or str(error).split("\n")[0] != str(wanted).split("\n")[0]:
            return f"an index of {wrong}: {type(error).__name__}: {error}, wanted {type(wanted).__name__}: {wanted}"
    else:
        return f"an index of {wrong} in %{i.id} raises nothing, wanted {type(wanted).__name__}: {wanted}"
    for k, t, old in zip(program.arguments, given, before):
        if not same(t, old):
            return f"input %{k.id} was written though the call failed"
    return ""


def difference_compiled(program: Program) -> str:
    """As a function through torch.compile; where gradients go back, these too."""
    arguments = [i for i in program.arguments]
    fixed = {i.id for i in program.inputs} - {i.id for i in arguments}
    constants = {k: t for k, t in make_inputs(program, program.number).items() if k in fixed}

    def function(given: list[torch.Tensor], wide: bool = False, fixed: dict[int, torch.Tensor] = constants) -> list[Any]:
        values = {**fixed, **dict(zip([i.id for i in arguments], given))}
        for instruction in program.body:
            values.update(zip(instruction.results, call(instruction.op, resolve(instruction.args, values, wide))))
        for into, value in program.copies:
            values[into].copy_(values[value])
        return [None if k is None else values[k] for k in program.outputs]

    def one_run(run: Callable, seed: int, wide: bool, train: bool) -> tuple[list, list, list]:
        made = make_inputs(program, seed)
        made = widened(made) if wide else made
        given = [made[i.id].detach().requires_grad_(train and made[i.id].is_floating_point()) for i in arguments]
        torch.set_default_dtype(torch.float64 if wide else torch.float32)
        try:
            outputs = run(given, wide, widened(constants) if wide else constants)
        finally:
            torch.set_default_dtype(torch.float32)
        graded = [t for t in outputs if t is not None and t.requires_grad]
        if graded:
            sum((t.double() * torch.linspace(0.5, 1.5, t.numel(), dtype=torch.float64).view(t.shape)).sum() for t in graded).backward()
        return [None if t is None else t.detach() for t in outputs], given, [t.grad for t in given if t.requires_grad]

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="tenon", dynamic=False, fullgraph=True)
    train = not program.copies and not any(i.base >= 0 for i in program.inputs)
    try:
        one_run(function, program.number, False, train)
    except (RuntimeError, NotImplementedError):  # an operator without a derivative, or one into integers
        train = False
    for number, seed in enumerate((program.number, program.number + 1)):
        runs = [one_run(run, seed, wide, train) for run, wide in ((compiled, False), (function, False), (function, True))]
        (found, held, gradients), (wanted, held_by_aten, by_aten), (wide, held_wide, wide_gradients) = runs
        kinds = {"output": (found, wanted, wide), "input": (held, held_by_aten, held_wide)}
        kinds["gradient"] = (gradients, by_aten, wide_gradients)
        for what, three in kinds.items():
            for k, (a, b, c) in enumerate(zip(*three)):
                if (a is None) != (b is None):
                    return f"call {number}: {what} {k} is {a}, wanted {b}"
                grain = grain_of(program, program.outputs[k]) if what == "output" and a is not None else None
                if a is not None and (why := unlike(a.detach(), b.detach(), c.detach(), grain, False)):
                    return f"call {number}: {what} {k}: {why}"
    return ""
