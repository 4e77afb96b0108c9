"""tenon's accuracy rule, the one that tests, demo, benchmarks and users share.

``compare(candidate, eager, reference_fp64)`` walks three equal pytrees. For every leaf:

* dtype, shape and (by default) strides equal eager's; strides of dimensions of size <= 1
  and of empty tensors address nothing and are not compared;
* integer, bool and non-tensor leaves equal eager's exactly;
* NaN, +Inf and -Inf stand exactly where eager has them;
* on the finite rest, with errors taken against the float64 reference:

      RMSE(candidate) <= k * RMSE(eager) + 1e-5 * RMS(reference)
      max |error|     <= 4 * eager's max |error| + 1e-4 * max |reference|

  where k = 3 for bfloat16/float16 and for fewer than 10 elements, else 2.

A leaf whose reference is constant, has RMS < 1e-3, has no finite element, or from which eager
itself is further away than ``EAGER_LIMIT`` proves nothing: it fails as *vacuous* unless
``vacuous_ok``. Empty leaves and leaves of one element are never called constant.

Where there is no reference (``None``: the op has no float64 kernel) or it is not finite where
eager is, eager's own value stands in, and eager's error there is taken to be one rounding of
the leaf's dtype; the row says ``no fp64``.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Iterable, Sequence

import torch
from torch.utils import _pytree as pytree

RMSE_SLACK = 1e-5
MAX_FACTOR = 4.0
MAX_SLACK = 1e-4
VACUOUS_RMS = 1e-3
# Eager's RMSE relative to the reference's RMS, above which the two compute different things.
EAGER_LIMIT = {torch.float16: 0.3, torch.bfloat16: 0.3}
EAGER_LIMIT_DEFAULT = 0.1

_HALVES = (torch.float16, torch.bfloat16)


@dataclasses.dataclass
class Leaf:
    """What was found about one output or gradient. Errors are against the fp64 reference."""

    name: str
    problems: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    dtype: str = ""
    shape: tuple[int, ...] = ()
    rms: float = math.nan
    rmse: float = math.nan
    rmse_eager: float = math.nan
    rmse_bound: float = math.nan
    max_error: float = math.nan
    max_eager: float = math.nan
    max_bound: float = math.nan

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def used(self) -> float:
        """Share of the bound that the candidate uses, the worse of the two; nan if exact."""
        shares = [
            error / bound
            for error, bound in ((self.rmse, self.rmse_bound), (self.max_error, self.max_bound))
            if bound > 0
        ]
        return max(shares, default=math.nan)


@dataclasses.dataclass
class Report:
    """Rows of `compare`. Truth is spelled `.ok`; `str()` is a table."""

    rows: list[Leaf]

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows) and not self.failures_beyond_rows()

    @property
    def failures(self) -> list[str]:
        found = [f"{row.name}: {problem}" for row in self.rows for problem in row.problems]
        return found + self.failures_beyond_rows()

    def failures_beyond_rows(self) -> list[str]:
        return []

    @property
    def worst(self) -> Leaf | None:
        numeric = [row for row in self.rows if not math.isnan(row.used)]
        return max(numeric, key=lambda row: row.used, default=None)

    def raise_if_failed(self) -> "Report":
        if not self.ok:
            head = "\n".join(f"  {line}" for line in self.failures[:20])
            raise AssertionError(f"accuracy rule not met:\n{head}\n{self}")
        return self

    def summary(self, limit: int = 6) -> str:
        """The failing rows and the `limit` rows that use most of their bound."""
        good = sorted(
            (row for row in self.rows if row.ok),
            key=lambda row: -1.0 if math.isnan(row.used) else row.used,
            reverse=True,
        )
        rows = [row for row in self.rows if not row.ok] + good[:limit]
        rest = len(self.rows) - len(rows)
        return _table(rows) + (f"\n... and {rest} more leaves, all ok" if rest else "")

    def __str__(self) -> str:
        return _table(self.rows)


def compare(
    candidate: Any,
    eager: Any,
    reference_fp64: Any,
    *,
    names: Sequence[str] | None = None,
    vacuous_ok: bool | Callable[[str], bool] = False,
    check_strides: bool = True,
) -> Report:
    """Judges `candidate` by the rule above. `reference_fp64` may be None, whole or per leaf.

    `names` overrides the leaves' pytree paths, `vacuous_ok` may decide by name.
    """
    found, found_spec = pytree.tree_flatten(candidate)
    wanted, wanted_spec = pytree.tree_flatten(eager)
    if found_spec != wanted_spec:
        row = Leaf("structure", [f"is {found_spec}, eager's is {wanted_spec}"])
        return Report([row])
    truth = _reference_leaves(reference_fp64, len(wanted))
    names = list(names) if names is not None else leaf_names(eager)
    if len(names) != len(wanted):
        raise ValueError(f"compare: {len(names)} names for {len(wanted)} leaves")
    allow = vacuous_ok if callable(vacuous_ok) else lambda _name: bool(vacuous_ok)
    rows = [
        _compare_leaf(name, c, e, r, allow(name), check_strides)
        for name, c, e, r in zip(names, found, wanted, truth)
    ]
    return Report(rows)


def leaf_names(tree: Any, prefix: str = "out") -> list[str]:
    paths, _ = pytree.tree_flatten_with_path(tree)
    return [prefix + pytree.keystr(path) for path, _ in paths]


def _reference_leaves(reference: Any, count: int) -> list[Any]:
    if reference is None:
        return [None] * count
    leaves = pytree.tree_leaves(reference)
    if len(leaves) != count:
        raise ValueError(f"compare: the reference has {len(leaves)} leaves, eager {count}")
    return leaves


def _compare_leaf(name, candidate, eager, reference, vacuous_ok, check_strides) -> Leaf:
    row = Leaf(name)
    if not isinstance(eager, torch.Tensor) or not isinstance(candidate, torch.Tensor):
        if not _same_object(candidate, eager):
            row.problems.append(f"is {candidate!r}, eager's is {eager!r}")
        return row
    row.dtype = str(eager.dtype).removeprefix("torch.")
    row.shape = tuple(eager.shape)
    row.problems += _meta_problems(candidate, eager, check_strides)
    if candidate.shape != eager.shape or candidate.dtype != eager.dtype:
        return row
    candidate, eager = _dense(candidate), _dense(eager)
    if not (eager.is_floating_point() or eager.is_complex()):
        if not torch.equal(candidate, eager):
            wrong = int((candidate != eager).sum())
            row.problems.append(f"{wrong} of {eager.numel()} elements differ from eager's")
        return row
    _compare_floats(row, candidate, eager, reference, vacuous_ok)
    return row


def _same_object(candidate: Any, eager: Any) -> bool:
    if type(candidate) is not type(eager):
        return False
    if isinstance(eager, float) and math.isnan(eager):
        return math.isnan(candidate)
    return bool(candidate == eager)


def _meta_problems(candidate: torch.Tensor, eager: torch.Tensor, check_strides: bool) -> list[str]:
    problems = []
    for what in ("dtype", "layout", "device"):
        is_, wanted = getattr(candidate, what), getattr(eager, what)
        if is_ != wanted:
            problems.append(f"{what} is {is_}, eager's is {wanted}")
    if candidate.shape != eager.shape:
        problems.append(f"shape is {tuple(candidate.shape)}, eager's is {tuple(eager.shape)}")
    elif check_strides and eager.layout == torch.strided == candidate.layout:
        if _addressing(candidate) != _addressing(eager):
            problems.append(f"strides are {candidate.stride()}, eager's are {eager.stride()}")
    return problems


def _addressing(tensor: torch.Tensor) -> list[int]:
    if tensor.numel() == 0:
        return []
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def _as_real_fp64(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.resolve_conj()
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128))
    return tensor.to(torch.float64)


def _compare_floats(row: Leaf, candidate, eager, reference, vacuous_ok: bool) -> None:
    dtype = eager.dtype
    found, wanted = _as_real_fp64(candidate), _as_real_fp64(eager)
    row.problems += _mask_problems(found, wanted)
    if reference is None:
        truth, stand_in = wanted, torch.ones_like(wanted, dtype=torch.bool)
    else:
        truth = _as_real_fp64(_dense(reference))
        if truth.shape != wanted.shape:
            row.problems.append(f"reference has shape {tuple(truth.shape)}")
            return
        stand_in = wanted.isfinite() & ~truth.isfinite()
        truth = torch.where(stand_in, wanted, truth)
    if stand_in.any():
        row.notes.append("no fp64" if reference is None else f"{int(stand_in.sum())} no fp64")
    finite = found.isfinite() & wanted.isfinite()
    if excluded := finite.numel() - int(finite.sum()):
        row.notes.append(f"{excluded} not finite")
    _measure(row, found[finite], wanted[finite], truth[finite], stand_in[finite], dtype)
    if not vacuous_ok and wanted.numel() > 0:
        row.problems += _vacuous(row, truth[finite], dtype)


def _mask_problems(found: torch.Tensor, wanted: torch.Tensor) -> list[str]:
    masks = {
        "NaN": torch.isnan,
        "+Inf": torch.isposinf,
        "-Inf": torch.isneginf,
    }
    problems = []
    for what, mask in masks.items():
        differing = int((mask(found) != mask(wanted)).sum())
        if differing:
            problems.append(f"{what} mask differs from eager's in {differing} elements")
    return problems


def _measure(row: Leaf, found, wanted, truth, stand_in, dtype: torch.dtype) -> None:
    if truth.numel() == 0:
        return
    error, eager_error = (found - truth).abs(), (wanted - truth).abs()
    if stand_in.any():
        rounding = torch.finfo(dtype).eps / 2 * truth.abs()
        eager_error = torch.where(stand_in, rounding, eager_error)
    k = 3.0 if dtype in _HALVES or truth.numel() < 10 else 2.0
    row.rms = _rms(truth)
    row.rmse, row.rmse_eager = _rms(error), _rms(eager_error)
    row.rmse_bound = k * row.rmse_eager + RMSE_SLACK * row.rms
    row.max_error, row.max_eager = float(error.max()), float(eager_error.max())
    row.max_bound = MAX_FACTOR * row.max_eager + MAX_SLACK * float(truth.abs().max())
    if row.rmse > row.rmse_bound:
        row.problems.append(f"RMSE {row.rmse:.3g} > {row.rmse_bound:.3g} (eager {row.rmse_eager:.3g})")
    if row.max_error > row.max_bound:
        row.problems.append(
            f"max error {row.max_error:.3g} > {row.max_bound:.3g} (eager {row.max_eager:.3g})"
        )


def _rms(values: torch.Tensor) -> float:
    # Scaled, so that values near float64's limits neither overflow nor vanish when squared.
    scale = float(values.abs().max())
    if scale == 0.0 or not math.isfinite(scale):
        return scale
    return scale * float((values / scale).square().mean().sqrt())


def _vacuous(row: Leaf, truth: torch.Tensor, dtype: torch.dtype) -> list[str]:
    if truth.numel() == 0:
        return ["vacuous: no finite element"]
    if row.rms < VACUOUS_RMS:
        return [f"vacuous: RMS of the reference is {row.rms:.3g} < {VACUOUS_RMS}"]
    if truth.numel() > 1 and bool((truth == truth.flatten()[0]).all()):
        return ["vacuous: the reference is constant"]
    if row.rmse_eager > EAGER_LIMIT.get(dtype, EAGER_LIMIT_DEFAULT) * row.rms:
        return [f"vacuous: eager is {row.rmse_eager / row.rms:.2g} of the RMS off the reference"]
    return []


def _table(rows: Iterable[Leaf]) -> str:
    head = ("leaf", "dtype", "shape", "rms", "rmse", "eager", "bound", "max", "eager", "bound", "")
    lines = [head]
    for row in rows:
        numbers = [
            row.rms, row.rmse, row.rmse_eager, row.rmse_bound,
            row.max_error, row.max_eager, row.max_bound,
        ]  # fmt: skip
        verdict = "; ".join(["FAIL " + "; ".join(row.problems)] if row.problems else ["ok"])
        if row.notes:
            verdict += f" ({', '.join(row.notes)})"
        cells = ["-" if math.isnan(number) else f"{number:.2e}" for number in numbers]
        shape = "x".join(map(str, row.shape)) if row.dtype else ""
        lines.append((row.name, row.dtype, shape, *cells, verdict))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths + [0])).rstrip()
        for line in lines
    )

