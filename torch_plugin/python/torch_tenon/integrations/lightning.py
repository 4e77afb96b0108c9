"""Lightning, as `lightning` or `pytorch_lightning`.

Trainer.fit(torch.compile(module, backend="tenon")) works without this. TenonCallback does the same to a module
that others hand over, and says what ran natively.
"""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import torch

from ._watch import Watch

if importlib.util.find_spec("lightning") is not None:
    from lightning.pytorch import Callback
else:
    from pytorch_lightning import Callback

_logger = logging.getLogger("tenon")
_STEPS = ("training_step", "validation_step", "test_step", "predict_step")


class TenonCallback(Callback):
    """Trainer(callbacks=[TenonCallback()]): compiles the module's forward when a run is set up, and logs at its end
    ("tenon", INFO) what ran natively. The summary is `summary` then. `steps`: the steps, with what they compute around
    the forward, instead; self.log in a step breaks its graph. Further arguments are torch.compile's."""

    def __init__(self, steps: bool = False, **compile_arguments: Any):
        self._steps, self._arguments = steps, compile_arguments
        self._watch: Watch | None = None
        self._compiled: list[str] = []
        self.summary = ""

    def setup(self, trainer, pl_module, stage: str) -> None:
        if getattr(pl_module, "_compiler_ctx", None) is not None:
            raise ValueError("TenonCallback: the module is compiled already; leave one of the two out")
        self._watch = Watch()
        for name in _STEPS if self._steps else ("forward",):
            setattr(pl_module, name, torch.compile(getattr(pl_module, name), backend="tenon", **self._arguments))
            self._compiled.append(name)

    def teardown(self, trainer, pl_module, stage: str) -> None:
        while self._compiled:
            delattr(pl_module, self._compiled.pop())  # the class's own is what was hidden
        if self._watch is not None:
            self.summary = self._watch.summary()
            _logger.info("%s", self.summary)
