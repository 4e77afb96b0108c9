"""What a model case is, the table of them, and what the families share."""

import dataclasses
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn

CASES: dict[str, "Case"] = {}


@dataclasses.dataclass
class Case:
    name: str
    family: str  # "transformer", "cnn" or "other"
    build: Callable[[], tuple[nn.Module, tuple]]
    quick: bool = False  # part of `make test`
    trains: bool = False  # gradients are compared although there is no `loss` to make AdamW's steps of: they are a random projection's
    train_build: Callable[[], tuple[nn.Module, tuple]] | None = None
    loss: Callable[[Any], torch.Tensor] | None = None

    def make(self) -> tuple[nn.Module, tuple]:
        torch.manual_seed(1234)
        model, args = self.build()
        return model.eval(), args

    def make_train(self) -> tuple[nn.Module, tuple]:
        """The same network with dropout off, in train mode."""
        torch.manual_seed(1234)
        model, args = (self.train_build or self.build)()
        return model.train(), args


def case(name, family, **fields):
    def register(build):
        CASES[name] = Case(name, family, build, **fields)
        return build

    return register


def ids(vocab, *shape):
    return torch.randint(0, vocab, shape)


def next_token_loss(logits):
    targets = torch.arange(logits.shape[0] * logits.shape[1]) * 7919 % logits.shape[-1]
    return F.cross_entropy(logits.flatten(0, 1), targets)


def class_loss(logits):
    return F.cross_entropy(logits, torch.arange(logits.shape[0]) * 7 % logits.shape[-1])


class Pick(nn.Module):
    """Calls a transformers model without a cache and returns one field of its output."""

    def __init__(self, model, inputs, field, **fixed):
        super().__init__()
        self.model, self.inputs, self.field, self.fixed = model, inputs, field, fixed

    def forward(self, *args):
        return getattr(self.model(**dict(zip(self.inputs, args)), **self.fixed), self.field)
