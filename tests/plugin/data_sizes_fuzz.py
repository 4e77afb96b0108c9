"""Random programs whose sizes data decide, by tenon and by eager.

    python -m plugin.data_sizes_fuzz --seed 1 --programs 500 [--train] [--plant]      (from tests/)

A value is rows of floats with a whole number each, its keys: what decides is exact (which rows have which keys), so that eager and tenon
decide alike. Programs are drawn from a seed, compiled once, and called with inputs of several lengths, among them such that nothing or one
row is found. PyTorch cannot trace some of them without a guard on what data decide: these are counted.
"""

from __future__ import annotations

import argparse
import random
from typing import Callable

import torch

COLUMNS = 8
Value = tuple[torch.Tensor, torch.Tensor]  # rows, keys
Instruction = Callable[[list[Value], dict[str, torch.Tensor]], Value]


def _where(v: Value, by: int, rest: int) -> torch.Tensor:
    return v[1] % by == rest


def _experts(v: Value, by: int, weights: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(v[0])
    for k in range(2):
        rows = _where(v, by, k).nonzero().squeeze(1)
        out = out.index_add(0, rows, v[0][rows] @ weights + k)
    return out


def _some(v: Value, by: int) -> Value:
    """As many rows as an item says, of no data's."""
    m = _where(v, by, 0).sum().item()
    torch._check(m >= 0)
    keys = torch.arange(m)
    return torch.ones(m, COLUMNS, dtype=v[0].dtype) * keys[:, None] / 100, keys


# Makes an instruction of an operand and two numbers that were drawn.
_ONE = {
    "pointwise": lambda a, p, q: lambda vs, w: ((vs[a][0] * 0.5 + p / 10).tanh(), vs[a][1]),
    "softmax": lambda a, p, q: lambda vs, w: (vs[a][0].softmax(p % 2), vs[a][1]),
    "product": lambda a, p, q: lambda vs, w: ((vs[a][0] @ w["square"]).tanh(), vs[a][1]),
    "centred": lambda a, p, q: lambda vs, w: (vs[a][0] - vs[a][0].sum(p % 2, keepdim=True) / 16, vs[a][1]),
    "cumsum": lambda a, p, q: lambda vs, w: ((vs[a][0].cumsum(0) / 8).tanh(), vs[a][1]),
    "counted": lambda a, p, q: lambda vs, w: (vs[a][0] * (vs[a][0].shape[0] % 5) / 4, vs[a][1]),
    "drawn": lambda a, p, q: lambda vs, w: (vs[a][0] + torch.rand(COLUMNS, dtype=vs[a][0].dtype), vs[a][1]),
    "by_truth": lambda a, p, q: lambda vs, w: tuple(t[_where(vs[a], 2 + p % 3, q % 2)] for t in vs[a]),
    "rows": lambda a, p, q: lambda vs, w: tuple(t[_where(vs[a], 2 + p % 3, q % 2).nonzero().squeeze(1)] for t in vs[a]),
    "selected": lambda a, p, q: lambda vs, w: (
        torch.masked_select(vs[a][0], _where(vs[a], 2 + p % 3, q % 2)[:, None]).reshape(-1, COLUMNS),
        torch.masked_select(vs[a][1], _where(vs[a], 2 + p % 3, q % 2)),
    ),
    "repeated": lambda a, p, q: lambda vs, w: tuple(torch.repeat_interleave(t, vs[a][1] % 3, 0) for t in vs[a]),
    "unique": lambda a, p, q: lambda vs, w: (lambda u: (u[:, None] * torch.ones(COLUMNS, dtype=vs[a][0].dtype) / 50, u))(vs[a][1].unique()),
    "experts": lambda a, p, q: lambda vs, w: (_experts(vs[a], 2 + p % 2, w["square"]).tanh(), vs[a][1]),
    "some": lambda a, p, q: lambda vs, w: _some(vs[a], 2 + p % 3),
}  # fmt: skip
_TWO = {
    "cat": lambda a, b: lambda vs, w: tuple(torch.cat([x, y]) for x, y in zip(vs[a], vs[b])),
    "outer": lambda a, b: lambda vs, w: ((vs[a][0][:, None, :1] * vs[b][0][None, :, :]).tanh().mean(1), vs[a][1]),
    "mean_of": lambda a, b: lambda vs, w: (vs[a][0] + vs[b][0].sum(0) / 20, vs[a][1]),
}  # fmt: skip


def draw(seed: int) -> tuple[list[str], Callable]:
    """Its instructions' names, and the program: of rows, keys and a matrix."""
    r = random.Random(seed)
    names, instructions = [], []
    for place in range(r.randint(2, 7)):
        if r.random() < 0.25:
            name, a, b = r.choice(list(_TWO)), r.randint(0, place), r.randint(0, place)
            names.append(f"{name}(v{a}, v{b})")
            instructions.append(_TWO[name](a, b))
        else:
            name, a, p, q = r.choice(list(_ONE)), r.randint(max(0, place - 2), place), r.randint(0, 5), r.randint(0, 5)
            names.append(f"{name}(v{a}, {p}, {q})")
            instructions.append(_ONE[name](a, p, q))
    drawn = {place + 1 for place, name in enumerate(names) if name.startswith("drawn")}  # PyTorch drops draws that nothing uses
    kept = sorted({place + 1 for place in range(len(instructions)) if r.random() < 0.4} | drawn | {len(instructions)})

    def program(rows, keys, square):
        values = [(rows, keys)]
        for instruction in instructions:
            values.append(instruction(values, {"square": square}))
        return [values[k] for k in kept]

    return names, program


def inputs_of(seed: int, call: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(97 * seed + call)
    length = (12, 30, 7, 50)[call % 4]
    keys = torch.randint(0, 12, (length,))
    if call == 2:  # no row is found by most instructions, or one is
        keys[:] = 11
        keys[seed % length] = 6 if seed % 2 else 11
    return torch.randn(length, COLUMNS, dtype=dtype), keys, torch.randn(COLUMNS, COLUMNS, dtype=dtype) / 3


def _results(f: Callable, inputs: tuple[torch.Tensor, ...], seed: int, train: bool) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    rows, keys, square = inputs
    if not train:
        with torch.no_grad():
            return [t for value in f(rows, keys, square) for t in value]
    rows, square = rows.clone().requires_grad_(), square.clone().requires_grad_()
    outputs = f(rows, keys, square)
    total = sum((value[0] * value[0]).sum() for value in outputs)
    if total.requires_grad:
        total.backward()
    grads = [t.grad if t.grad is not None else torch.zeros(()) for t in (rows, square)]
    return [t.detach() for value in outputs for t in value] + grads


_UNTRACED = (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError, torch._dynamo.exc.BackendCompilerFailed)


def difference(seed: int, train: bool = False, plant: bool = False, backend: str = "tenon") -> str | None:
    """What is wrong, "" if nothing; None: PyTorch does not trace the program."""
    _, program = draw(seed)
    dtype = torch.float64 if seed % 3 == 0 else torch.float32
    torch._dynamo.reset()
    options = {"sizes": "one"} if backend == "tenon" else None  # which are timed
    compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=True, options=options)
    config = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    for call in range(4):
        inputs = inputs_of(seed, call, dtype)
        want = _results(program, inputs, seed, train)
        try:
            with torch._dynamo.config.patch(config):
                got = _results(compiled, inputs, seed, train)
        except _UNTRACED as error:
            if call == 0 and (backend == "aot_eager" or difference(seed, train, plant, "aot_eager") is None):
                return None
            return f"call {call}: {error}"
        if plant and call == 3:
            got[0] = got[0] + 1e-3
        tolerance = 1e-9 if dtype == torch.float64 else 2e-4
        try:
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
        except AssertionError as error:
            return f"call {call}: {error}"
    return ""


def run(seed: int, programs: int, train: bool = False, plant: bool = False, backend: str = "tenon") -> tuple[int, list[str]]:
    """How many ran, and what was found."""
    ran, found = 0, []
    for k in range(seed, seed + programs):
        what = difference(k, train, plant, backend)
        ran += what is not None
        if what:
            names = "\n  ".join(draw(k)[0])
            found.append(f"program {k}:\n  {names}\n{what[:800]}")
            print(found[-1], flush=True)
    return ran, found


def main() -> None:
    import torch_tenon  # noqa: F401

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--plant", action="store_true", help="a wrong number in one call of each: all have to differ")
    parser.add_argument("--backend", default="tenon")
    options = parser.parse_args()
    ran, found = run(options.seed, options.programs, options.train, options.plant, options.backend)
    print(f"{options.programs} programs, {ran} ran, {len(found)} differ")
    raise SystemExit(bool(found) if not options.plant else len(found) != ran)


if __name__ == "__main__":
    main()
