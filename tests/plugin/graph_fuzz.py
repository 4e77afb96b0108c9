"""Random graphs of ATen operators through the C++ seam, against ATen op by op.

    python -m plugin.graph_fuzz --seed 1 --graphs 5000 [--symbols] [--compile] [--seconds 600] [--guard 1] [--jobs 2]      (from tests/)
    python -m plugin.graph_fuzz --only 1000017                                        one graph again, printed

A graph is drawn from a number (graph_fuzz_draw.py) as inputs (views, memory that is shared, 0-d, empty, all dtypes), nodes
(graph_fuzz_ops.py), writes of inputs at the end, as AOTAutograd has them, and outputs: values, inputs, views of both, one value twice,
None. It becomes a `_C.Graph` call by call, without Dynamo, and its executable is called several times: other numbers, other places in
memory, nobody else holding the inputs, an index out of range. ATen runs the same nodes one after the other. With --symbols sizes are
symbols, and one executable is called at many sizes, and with inputs that its guards must refuse (graph_fuzz_symbols.py). With --compile the
nodes are a function through torch.compile, gradients too.

Judged (graph_fuzz_judge.py): values (bit by bit where they are exact, else by torch_tenon.testing.compare), dtypes, sizes, strides, which
outputs share memory with what, inputs afterwards, version counters, errors and their text, what earlier calls returned, and that the graph
ran natively. A graph that differs is cut to fewer nodes and printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import re
import subprocess
import sys
import time
import warnings
from typing import Any, Callable

import torch

from plugin.graph_fuzz_draw import draw
from plugin.graph_fuzz_graph import Compiled
from plugin.graph_fuzz_judge import difference, difference_compiled
from plugin.graph_fuzz_ops import SizeOf
from plugin.graph_fuzz_program import Input, Program, Ref, live, make_inputs, needed_by, run_by_aten


def cut(program: Program, differs: Callable[[Program], bool]) -> Program:
    """Fewer nodes, outputs and writes that still differ."""
    best, progress = program, True
    while progress:
        progress = False
        for smaller in _smaller(best):
            try:
                run_by_aten(smaller, make_inputs(smaller, smaller.number))
            except Exception:
                continue
            if differs(smaller):
                best, progress = smaller, True
                break
    return best


def _smaller(program: Program):
    needed, without = needed_by(program), live(program)
    if len(without.body) < len(program.body):
        yield without
    for k in range(len(program.outputs)):
        if len(program.outputs) > 1:
            yield dataclasses.replace(program, outputs=[*program.outputs[:k], *program.outputs[k + 1 :]])
    for k in range(len(program.copies)):
        yield dataclasses.replace(program, copies=[*program.copies[:k], *program.copies[k + 1 :]])
    try:
        values = run_by_aten(dataclasses.replace(program, copies=[]), make_inputs(program, program.number))
        symbolic = _shapes(program) if program.hints else {}
    except Exception:
        return
    for k in reversed(range(len(program.body))):
        removed = program.body[k]
        rest = [*program.body[:k], *program.body[k + 1 :]]
        # Its readers read an operand of the same kind, or an input of its own.
        for old in removed.refs():
            kind = lambda k: (values[k].shape, values[k].dtype)
            if len(removed.results) == 1 and kind(old) == kind(removed.results[0]):
                yield _renamed(dataclasses.replace(program, body=rest), {removed.results[0]: old})
        shapes = symbolic if program.hints else {r: tuple(values[r].shape) for r in removed.results}
        if all(r in shapes for r in removed.results):
            fresh = [Input(r, shapes[r], values[r].dtype) for r in removed.results if r in needed]
            yield dataclasses.replace(program, inputs=[*program.inputs, *fresh], body=rest)
    used = needed | set().union(*(set(i.refs()) for i in program.body), set()) | program.written() | {i.base for i in program.inputs}
    for i in program.inputs:
        if i.id not in used and len(program.arguments) > 1:
            yield dataclasses.replace(program, inputs=[j for j in program.inputs if j is not i])


def _shapes(program: Program) -> dict[int, tuple]:
    """Over the symbols."""
    from plugin.graph_fuzz_symbols import trace

    number = lambda s: s if isinstance(s, int) else s.node.expr if s.node.expr.free_symbols else int(s.node.expr)
    return {k: tuple(map(number, t.shape)) for k, t in trace(program).values.items()}


def _renamed(program: Program, names: dict[int, int]) -> Program:
    def renamed(arg: Any) -> Any:
        if isinstance(arg, Ref):
            return Ref(names.get(arg.id, arg.id))
        if isinstance(arg, SizeOf):
            return dataclasses.replace(arg, value=names.get(arg.value, arg.value))
        return [renamed(a) for a in arg] if isinstance(arg, list) else arg

    body = [dataclasses.replace(i, args=renamed(i.args)) for i in program.body]
    copies = [(a, names.get(b, b)) for a, b in program.copies]
    outputs = [None if k is None else names.get(k, k) for k in program.outputs]
    return dataclasses.replace(program, body=body, copies=copies, outputs=outputs)


def wrong(program: Program, compiled_by: Callable = Compiled, judge: Callable | None = None) -> str:
    try:
        return judge(program) if judge else difference(program, compiled_by)
    except Exception as error:  # ATen has run it
        return f"{type(error).__name__}: {error}"


def kind_of(what: str) -> str:
    """What is wrong, its numbers aside."""
    return re.sub(r"call \d+: |[%\d]+", "", what)[:24]


def run(
    seed: int, graphs: int, symbolic: bool = False, seconds: float = float("inf"), first: int = 0, every: int = 1,
    note: Callable[[int], None] = lambda number: None, tell: Callable[[str], None] = print, judge: Callable | None = None,
) -> tuple[int, list[str]]:
    """How many ran, and what was found."""
    found, began, count = [], time.monotonic(), 0
    for k in range(first, graphs, every):
        if time.monotonic() - began > seconds:
            break
        number = seed * 1_000_000 + k
        note(number)
        program, _ = draw(number, symbolic)
        count += 1
        what = wrong(program, judge=judge)
        if what:
            smaller = cut(program, lambda p: kind_of(wrong(p, judge=judge)) == kind_of(what))
            found.append(f"graph {number}: {what[:300]}\n{smaller}\n{wrong(smaller, judge=judge)[:1500]}")
            tell(found[-1] + "\n")
    return count, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--only", type=int, help="one graph again, by its number")
    parser.add_argument("--symbols", action="store_true", help="sizes are symbols")
    parser.add_argument("--compile", action="store_true", help="through torch.compile, gradients too")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--guard", choices=("1", "2"), help="memory beside tensors may not be touched: behind them, or before them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--every", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.guard and os.environ.get("TENON_GUARD") != options.guard:
        os.environ["TENON_GUARD"] = options.guard
    if options.only is not None:
        import conftest  # noqa: F401  (guarded memory)

        program, _ = draw(options.only, options.symbols)
        print(program, wrong(program, judge=difference_compiled if options.compile else None) or "no difference", sep="\n")
        return
    if options.every:
        return _worker(options)
    sys.exit(_parent(options))


def _worker(options: argparse.Namespace) -> None:
    import conftest  # noqa: F401

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # of fake kernels that cannot
    tell = lambda text: print(text, file=sys.stderr, flush=True)
    note = lambda number: print(f"at {number}", flush=True)
    count, found = run(options.seed, options.graphs, options.symbols, options.seconds, options.first, options.every, note, tell,
                       difference_compiled if options.compile else None)  # fmt: skip
    print(f"done {count} {len(found)}", flush=True)


def _parent(options: argparse.Namespace) -> int:
    """Workers are processes, so that a crash costs one graph."""
    began, total, different = time.monotonic(), 0, 0
    left = {job: job for job in range(options.jobs)}
    running: dict[int, tuple[subprocess.Popen, Any]] = {}

    def start(job: int, first: int) -> None:
        seconds = options.seconds - (time.monotonic() - began)
        command = [sys.executable, "-m", "plugin.graph_fuzz", "--seed", str(options.seed), "--graphs", str(options.graphs), "--seconds",
                   str(seconds), "--first", str(first), "--every", str(options.jobs), *(["--symbols"] if options.symbols else []),
                   *(["--compile"] if options.compile else [])]  # fmt: skip
        out = open(f"/tmp/graph_fuzz.{os.getpid()}.{job}", "w+")
        running[job] = subprocess.Popen(command, stdout=out), out
        left[job] = first

    for job in range(options.jobs):
        start(job, job)
    while running:
        time.sleep(0.2)
        for job, (process, out) in list(running.items()):
            if process.poll() is None:
                continue
            del running[job]
            out.seek(0)
            lines = out.read().split("\n")
            out.close()
            os.unlink(out.name)
            done = next((line.split() for line in lines if line.startswith("done ")), None)
            if done is not None:
                total, different = total + int(done[1]), different + int(done[2])
                continue
            at = [int(line.split()[1]) for line in lines if line.startswith("at ")]
            total, different = total + len(at), different + 1
            print(f"graph {at[-1] if at else '?'}: the process died, {process.returncode}\n", file=sys.stderr, flush=True)
            following = at[-1] - options.seed * 1_000_000 + options.jobs if at else options.graphs
            if following < options.graphs and time.monotonic() - began < options.seconds:
                start(job, following)
    took = time.monotonic() - began
    print(f"{total} graphs of seed {options.seed}, {different} differ, {total / took:.1f} a second")
    return int(different > 0)


if __name__ == "__main__":
    main()
