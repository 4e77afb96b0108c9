"""tenon: a compiler backend for PyTorch.

    torch.compile(model, backend="tenon")        # found through an entry point; no import needed
    torch_tenon.explain(model, *inputs)          # what became of the model: clusters, steps, reasons
    torch_tenon.why(model)                       # what was compiled again, for which guard, and what to change
    torch_tenon.profile()                        # with ...() as p: what each step of the runs inside costs
    torch_tenon.stats(), reset_stats()           # graphs and what their runs cost
    torch_tenon.compile_graph(gm, inputs)        # an FX graph of ATen ops, without torch.compile
    torch_tenon.refresh()                        # option "freeze": parameters were written to behind PyTorch's back
    torch_tenon.testing                          # the accuracy rule

Options are documented in torch_tenon.options. Importing this package changes nothing in PyTorch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["compile_graph", "explain", "options", "profile", "refresh", "reset_stats", "stats", "testing", "why"]

# Lazily: torch_tenon.testing must be importable without the extension.
_HOMES = {
    "stats": "registry",
    "reset_stats": "registry",
    "refresh": "registry",
    "explain": "explanation",
    "profile": "profiler",
    "why": "reasons",
    "compile_graph": "graphs",
    "cache_clear": "graphs",
}
_MODULES = ("backend", "decompositions", "hlo", "options", "testing")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
