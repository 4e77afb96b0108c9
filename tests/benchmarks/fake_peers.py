"""A tiny row and peers that behave, err, fail and hang: loaded by the processes of test_pair.py through `also`."""

import os
import signal
import time

import peers
import rows
import torch
from exported import NotExpressible


@rows.row("fake_row", "doubles 4 floats")
def _fake_row():
    return lambda x: x * 2, (torch.tensor([1.0, 2.0, 3.0, 5.0]),)


class FakeStep:
    graphs = 0
    result = 2.0

    def __init__(self, row):
        _, (self.x,) = row.make()
        self.steps = 0

    def first_call(self):
        print("what a library prints is no answer")

    def phases(self, first_s):
        return {"run": first_s}

    def values(self):
        return [self.x * self.result + self.steps]  # as of a step of training: a further one changes them

    def timed(self, count):
        self.steps += count
        return 1e-4 * count


class WrongStep(FakeStep):
    result = 3.0


class FailingStep(FakeStep):
    def first_call(self):
        raise ValueError("no such\n  operator")


class InexpressibleStep(FakeStep):
    def first_call(self):
        raise NotExpressible("aten.foo.default")


class DyingStep(FakeStep):
    def first_call(self):
        os.kill(os.getpid(), signal.SIGSEGV)


class HangingStep(FakeStep):
    def first_call(self):
        time.sleep(3600)


for kind in (FakeStep, WrongStep, FailingStep, InexpressibleStep, DyingStep, HangingStep):
    peers.add(kind.__name__, "", kind)
peers.add("Absent", "", FakeStep, ("no_such_module.at_all", "torch"))
