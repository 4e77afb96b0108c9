"""The options of torch.compile(..., backend="tenon", options={...}).

    fallback          "allow" (default), "warn" or "error": what to do when a graph, or an op of it,
                      doesn't run natively
    tier              "native" (default) or "eager_program": every op by ATen, no compiler
    isa               forces a lower instruction set: "avx512", "avx2", "sse4"
    provider          who computes dots, convolutions and attention, where it takes them: "host.matmul", "host.convolution",
                      "host.attention" (PyTorch's libraries), with freeze "host.linear_packed", "host.conv_packed" too, "generated"
                      (kernels); default: the first that takes them, what is frozen by what is fastest here
    freeze            inference: what hangs on the model's parameters and buffers alone is computed once, and their matrices and
                      convolution kernels are kept as kernels read them fastest (default False; docs/freezing.md)
    autograd          training: "own" (default), tenon's node of autograd where it can take the graph, or "stock", AOTAutograd's wrapper
                      around the same programs (docs/architecture/autograd.md)
    partitioner       training: "own" (default), tenon's partitioner where it can cut the graph, or "torch", PyTorch's min-cut
                      (docs/architecture/partition.md)
    sizes             graphs with dynamic sizes: "symbolic" (default), one program for all sizes where there can be one, and more for sizes
                      that are hot; "one", without these; "exact", one for each set of sizes (docs/architecture/sizes.md)
    excess_precision  bf16/f16 math stays f32 inside a fused kernel (default True)
    threads           what kernels are planned for (default: torch.get_num_threads())
    compile_threads   threads that compile (default: a few)
    dump              folder: aten, hlo, plans, LLVM IR and assembly of every graph
    cache             share executables of equal graphs (default True)
    repro_dir         where repros of failed compiles go (default ~/.cache/tenon/repro)
    disable_lowering  ATen overloads to leave to ATen ("*": all), for bisection
    disable_passes, passes, stop_after     the pass pipeline, for bisection
    verify_passes     the module is verified after each pass; default: TENON_VERIFY of the environment
    report            what explain().to_html() shows besides the program: "none" (default), "module", "code"
    inject_fault      tests: the failure to inject into the compiler

The environment gives defaults: TENON_FALLBACK, TENON_TIER, TENON_ISA, TENON_AUTOGRAD,
TENON_PARTITIONER, TENON_SIZES, TENON_DUMP, TENON_REPRO_DIR.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import types
from typing import Any

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_CHOICES = {
    "fallback": ("allow", "warn", "error"),
    "tier": ("native", "eager_program"),
    "isa": ("", "avx512", "avx2", "sse4"),
    "provider": ("", "host.matmul", "host.convolution", "host.attention", "host.linear_packed", "host.conv_packed", "generated"),
    "autograd": ("own", "stock"),
    "partitioner": ("own", "torch"),
    "sizes": ("symbolic", "one", "exact"),
    "report": ("none", "module", "code"),
}
_PYTHONS_OWN = ("fallback", "dump", "freeze", "autograd", "partitioner", "sizes")


@dataclasses.dataclass(frozen=True)
class Options:
    fallback: str = "allow"
    tier: str = "native"
    isa: str = ""
    provider: str = ""
    freeze: bool = False
    autograd: str = "own"
    partitioner: str = "own"
    sizes: str = "symbolic"
    excess_precision: bool = True
    threads: int = 0
    compile_threads: int = 0
    dump: str = ""
    cache: bool = True
    repro_dir: str = ""
    disable_lowering: tuple[str, ...] = ()
    disable_passes: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    stop_after: str = ""
    verify_passes: bool | None = None
    report: str = "none"
    inject_fault: str = ""

    @staticmethod
    def make(mode: str | None = None, options: dict[str, Any] | None = None) -> Options:
        """Checked options; ValueError for an unknown key or value, TypeError for a wrong type."""
        if mode is not None and mode not in MODES:
            raise ValueError(f"tenon: unknown mode {mode!r}; known: {', '.join(MODES)}")
        given = dict(_environment())
        given.update(options or {})
        fields = {field.name: field for field in dataclasses.fields(Options)}
        unknown = [key for key in given if key not in fields]
        if unknown:
            raise ValueError(
                f"tenon: unknown option {', '.join(map(repr, unknown))}; known: {', '.join(fields)}"
            )
        return Options(**{key: _checked(key, fields[key].default, value) for key, value in given.items()})

    def for_compiler(self) -> dict[str, Any]:
        """What libtenon is told; names as in torch_plugin/libtenon/options.h."""
        told = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in _PYTHONS_OWN and getattr(self, field.name) != field.default
        }
        if self.dump:
            told["dump_dir"] = self.dump
        return told


def _checked(key: str, default: Any, value: Any) -> Any:
    if isinstance(default, tuple):
        if isinstance(value, str) or not all(isinstance(v, str) for v in value):
            raise TypeError(f"tenon: option {key!r}: wanted a list of strings, got {value!r}")
        return tuple(value)
    if isinstance(default, str):
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
    wanted = bool if default is None else type(default)
    if type(value) is not wanted:
        raise TypeError(f"tenon: option {key!r}: wanted {wanted.__name__}, got {value!r}")
    if key in _CHOICES and value not in _CHOICES[key]:
        choices = ", ".join(repr(c) for c in _CHOICES[key] if c)
        raise ValueError(f"tenon: option {key!r}: wanted one of {choices}, got {value!r}")
    return value


@functools.cache
def _environment() -> types.MappingProxyType[str, Any]:
    names = {
        "fallback": "TENON_FALLBACK",
        "tier": "TENON_TIER",
        "isa": "TENON_ISA",
        "autograd": "TENON_AUTOGRAD",
        "partitioner": "TENON_PARTITIONER",
        "sizes": "TENON_SIZES",
        "dump": "TENON_DUMP",
        "repro_dir": "TENON_REPRO_DIR",
    }
    found = {key: os.environ[name] for key, name in names.items() if os.environ.get(name)}
    return types.MappingProxyType(found)
