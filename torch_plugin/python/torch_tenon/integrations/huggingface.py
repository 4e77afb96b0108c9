"""transformers' Trainer and accelerate.

Both take a closed list of backend names, so TrainingArguments(torch_compile_backend="tenon") and
Accelerator(dynamo_backend="tenon") are refused by accelerate. A model that is compiled before they get it works
as it is:

    trainer = Trainer(compile_for_trainer(model), ...)            # or callbacks=[TenonCallback()]
    model, optimizer = prepare(accelerator, model, optimizer)
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback

from ._watch import Watch

_logger = logging.getLogger("tenon")


def compile_for_trainer(model: nn.Module, **compile_arguments: Any) -> nn.Module:
    """The same module, its calls compiled in place: class, parameter names, forward's signature (which Trainer reads
    the data set's columns from), generate() and save_pretrained() stay. Further arguments are torch.compile's: options,
    dynamic, mode, fullgraph."""
    if isinstance(model, torch._dynamo.OptimizedModule):
        raise TypeError("compile_for_trainer: this model is compiled already; wanted the module itself")
    model.compile(backend="tenon", **compile_arguments)
    return model


def prepare(accelerator: Any, model: nn.Module, *others: Any, **compile_arguments: Any) -> Any:
    """accelerator.prepare(model compiled, *others): the model alone, or a tuple. accelerate unwraps the compiled
    module itself (unwrap_model, save_state)."""
    return accelerator.prepare(torch.compile(model, backend="tenon", **compile_arguments), *others)


class TenonCallback(TrainerCallback):
    """Trainer(model, callbacks=[TenonCallback()]): compiles the model when training begins, unless it is, and logs
    at its end ("tenon", INFO) what ran natively. The summary is `summary` then. Arguments are torch.compile's."""

    def __init__(self, **compile_arguments: Any):
        self._arguments = compile_arguments
        self._watch: Watch | None = None
        self.summary = ""

    def on_train_begin(self, args, state, control, model: nn.Module | None = None, **kwargs) -> None:
        if args.torch_compile:
            raise ValueError("TenonCallback: TrainingArguments ask for torch_compile too; leave that out")
        self._watch = Watch()
        if model is not None and model._compiled_call_impl is None:
            compile_for_trainer(model, **self._arguments)

    def on_train_end(self, args, state, control, **kwargs) -> None:
        if self._watch is not None:
            self.summary = self._watch.summary()
            _logger.info("%s", self.summary)
