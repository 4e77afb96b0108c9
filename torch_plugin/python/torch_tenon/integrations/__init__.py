"""tenon where another library calls the model: docs/huggingface.md, docs/lightning.md.

    torch_tenon.integrations.huggingface    transformers' Trainer, accelerate
    torch_tenon.integrations.lightning      Lightning

Nothing here patches these libraries; each module imports its library, and importing torch_tenon imports none.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["huggingface", "lightning"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
