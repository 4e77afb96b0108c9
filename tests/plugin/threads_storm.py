"""What a process that serves and trains does all at once, through torch.compile: eight threads share compiled graphs, train by tenon's
node of autograd and serve; two more compile and drop; one reads all that may be read; and the process forks in the middle. Every number
is compared, bit by bit, with what one thread alone had before.

A program of its own: test_threads.py runs it as it is, tools/dev/test_sanitizers.sh under ThreadSanitizer (docs/architecture/process.md).
tests/seam/threads_test.cc is the same below autograd.
"""

import argparse
import itertools
import json
import os
import threading
import time

os.environ["OMP_NUM_THREADS"] = "1"  # OpenMP's own threads are nothing that ThreadSanitizer sees

import torch
import torch_tenon
from forks import code_of_child
from torch_tenon import _C, dynamic

THREADS = 8
SIZES = range(2, 14)  # more of them than there may be programs for hot sizes
KEPT, DROPPED = float("inf"), 0.0


def loss(x, w, b, v):
    return ((torch.tanh(x @ w + b) @ v) ** 2).mean()


def evaluated(x, w, b, v):
    return torch.tanh(x @ w + b) @ v


def shared_loss(x, leaf):
    return (x * leaf * 2).sum()


def kept(x):
    return (x * 2 + 1).relu().sum(-1) + x.shape[0]


def dropped(x):
    return (x * 3 - 1).relu().sum(-1) + x.shape[0]


def sized_loss(x, w):
    return (x * w).relu().sum()


class Frozen(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 64 * 8).reshape(64, 8))

    def forward(self, x):
        return torch.tanh(x @ (self.weight * 2).t().contiguous())


def whole(*shape, seed=0):
    """Small whole numbers: their sums are the same in every order, by every program."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 + seed) % 11 - 5).float().reshape(shape)


def parameters(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).div_(4).requires_grad_() for shape in ((16, 32), (32,), (32, 4))]


class Work:
    """The compiled functions that all threads share, and what one thread had of them."""

    def __init__(self):
        def compiled(function, **how):
            return torch.compile(function, backend="tenon", **how)

        self.loss, self.shared_loss = compiled(loss, dynamic=False), compiled(shared_loss, dynamic=False)
        # A function of its own for each grad mode: threads of which some call one function with gradients and others without make Dynamo
        # (torch 2.13, backend "aot_eager" too) find its guards failed, and compile again until it gives up.
        self.evaluated = compiled(evaluated, dynamic=False)
        self.sized_loss = compiled(sized_loss, dynamic=True)
        self.kept, self.dropped = compiled(kept, dynamic=True), compiled(dropped, dynamic=True)
        self.frozen = compiled(Frozen(), dynamic=False, options={"freeze": True})
        self.executable = _C.compile(graph(7), {}, [])
        self.leaf = torch.ones(8, 4, requires_grad=True)  # of all threads
        for function, worth in ((self.kept, KEPT), (self.dropped, DROPPED), (self.sized_loss, KEPT)):
            dynamic.WORTH = worth
            arguments = (whole(4, 7),) if function is not self.sized_loss else (whole(4, 7), whole(7).requires_grad_())
            function(*arguments)
        self.expected = [self.trained(seed) for seed in range(THREADS)]
        self.expected_frozen = self.served_frozen()
        self.accumulate(0)
        self.leaf.grad = None

    def trained(self, seed):
        """Two steps of two accumulated gradients each; the second is taken twice, by a graph that is kept."""
        generator = torch.Generator().manual_seed(100 + seed)
        weights = parameters(seed)
        for _ in range(2):
            for part in range(2):
                value = self.loss(torch.randn(8, 16, generator=generator), *weights)
                if part == 1:
                    value.backward(retain_graph=True)
                value.backward()
            with torch.no_grad():
                for w in weights:
                    w.sub_(w.grad, alpha=0.125)
                    w.grad = None
        with torch.no_grad():
            return [w.detach() for w in weights] + [self.evaluated(torch.randn(8, 16, generator=generator), *weights)]

    def served_frozen(self):
        with torch.no_grad():
            return self.frozen(torch.linspace(-2, 2, 4 * 8).reshape(4, 8))

    def accumulate(self, seed):
        """Into the leaf of all threads."""
        self.shared_loss(whole(8, 4, seed=seed), self.leaf).backward()

    def sized(self, n, seed):
        x = whole(n, 7, seed=seed)
        if not torch.equal(self.kept(x), kept(x)) or not torch.equal(self.dropped(x), dropped(x)):
            return False
        own, eager = whole(7, seed=3).requires_grad_(), whole(7, seed=3).requires_grad_()
        self.sized_loss(x, own).backward()
        sized_loss(x, eager).backward()
        return torch.equal(own.grad, eager.grad)

    def direct(self, seed):
        """By an executable of all threads, without Dynamo."""
        x = whole(4, 40, seed=seed)
        y, total = self.executable([x])
        return torch.equal(y, x * 7 + 7) and torch.equal(total, y.sum(1))

    def round(self, thread, number):
        """True if every number is what it was."""
        if not self.direct(number):
            return False
        if not torch.equal(self.served_frozen(), self.expected_frozen):
            return False
        x = whole(SIZES[(number + thread) % len(SIZES)], 7, seed=number)
        if not torch.equal(self.kept(x), kept(x)) or not torch.equal(self.dropped(x), dropped(x)):
            return False
        self.accumulate(thread)
        same = all(torch.equal(a, b) for a, b in zip(self.trained(thread), self.expected[thread]))
        return same and self.sized(SIZES[(number * 5 + thread) % len(SIZES)], number)


def graph(n):
    return _C.Graph.parse(f"""graph "fresh" {{
  %x = input f32[4,40]{{40,1}}
  %m = aten.mul.Tensor(%x, {n}) -> f32[4,40]{{40,1}}
  %y = aten.add.Tensor(%m, {n}) -> f32[4,40]{{40,1}}
  %s = aten.sum.dim_IntList(%y, [1], false, none) -> f32[4]{{1}}
  return (%y, %s)
}}
""")


def compiles_graph(n):
    """Compiled for itself and dropped."""
    executable = _C.compile(graph(n), {"cache": n % 2 == 0}, [])
    x = whole(4, 40, seed=n)
    y, total = executable([x])
    return executable.summary()[0] == "native" and torch.equal(y, x * n + n) and torch.equal(total, y.sum(1))


def compiles_function(n):
    """Forward and backward of a function that nobody had before, compiled through Dynamo and dropped."""
    names = {"torch": torch}
    exec(f"def fresh(x):\n    return (x * {n} + {n}).relu().sum()\n", names)
    x, again = whole(4, 5, seed=n).requires_grad_(), whole(4, 5, seed=n).requires_grad_()
    value, expected = torch.compile(names["fresh"], backend="tenon", dynamic=False)(x), names["fresh"](again)
    value.backward()
    expected.backward()
    return torch.equal(value, expected) and torch.equal(x.grad, again.grad)


def reads(work):
    with torch_tenon.profile() as profile:
        work.served_frozen()
    told = torch_tenon.stats()
    json.loads(_C.cache_stats())
    executable = _C.compile(graph(3), {}, [])
    texts = [executable.text(), executable.info(), executable.report(), executable.stats(False), str(profile)]
    return all(texts) and len(told["graphs"]) > 0


class Storm:
    def __init__(self, work):
        self.work, self.stop, self.wrong = work, threading.Event(), []
        self.rounds, self.compiles, self.read = [0] * THREADS, [0, 0], 0
        self.threads = [threading.Thread(target=self.guarded, args=(self.trains, t)) for t in range(THREADS)]
        self.threads += [threading.Thread(target=self.guarded, args=(self.compiling, t)) for t in range(2)]
        self.threads += [threading.Thread(target=self.guarded, args=(what,)) for what in (self.reading, self.refreshing)]

    def guarded(self, target, *args):
        try:
            target(*args)
        except BaseException as error:
            import traceback

            traceback.print_exc()
            self.wrong.append(repr(error))

    def trains(self, thread):
        while not self.stop.is_set():
            if not self.work.round(thread, self.rounds[thread]):
                self.wrong.append(f"thread {thread}, round {self.rounds[thread]}")
            self.rounds[thread] += 1

    def compiling(self, which):
        for k in itertools.count(1):
            if self.stop.is_set():
                return
            if not (compiles_graph, compiles_function)[which](1 + k):
                self.wrong.append(f"compile {k} of {which}")
            if k % 3 == 0:
                torch_tenon.cache_clear()
            self.compiles[which] += 1

    def reading(self):
        while not self.stop.is_set():
            if not reads(self.work):
                self.wrong.append("what was read")
            self.read += 1
            time.sleep(0.01)

    def refreshing(self):
        """What is frozen is computed again, while others run."""
        while not self.stop.is_set():
            torch_tenon.refresh()
            time.sleep(0.002)

    def goes_on(self, seconds=600):
        """Every thread has done something more."""
        done = lambda: [*self.rounds, *self.compiles, self.read]  # noqa: E731
        before, deadline = done(), time.monotonic() + seconds
        while any(now == was for now, was in zip(done(), before)):
            assert not self.wrong, self.wrong
            assert time.monotonic() < deadline, (before, done())
            time.sleep(0.01)


def fork(work, number):
    """A child runs what its parent's threads run, and compiles: below Dynamo, whose guards and whose compiles have locks that another
    thread may hold at a fork. (And PyTorch allows a child no backward.)"""

    def work_of_child():
        assert work.direct(number), "what a child runs"
        assert compiles_graph(1000 + number), "what a child compiles"

    return code_of_child(work_of_child, 120)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forks", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dynamic.DynamicGraph._hot_ns = lambda self, record: 0.0  # every size is hot when it comes again
    work = Work()
    storm = Storm(work)
    for thread in storm.threads:
        thread.start()
    try:
        storm.goes_on()
        for number in range(arguments.forks):
            code = fork(work, number)
            assert code == 0, f"child {number} ended with {code}"
            storm.goes_on()
    finally:
        storm.stop.set()
    for thread in storm.threads:
        thread.join()
    assert not storm.wrong, storm.wrong

    total = sum(n * 2 * whole(8, 4, seed=thread) for thread, n in enumerate(storm.rounds))
    assert torch.equal(work.leaf.grad, total), (work.leaf.grad, total)

    graphs = torch_tenon.stats()["graphs"]
    graphs = list(graphs.values() if isinstance(graphs, dict) else graphs)
    assert all(g["tier"] == "native" for g in graphs), [(g["tier"], g["reason"]) for g in graphs]
    nodes = [g["autograd"] for g in graphs if g.get("autograd")]
    verdicts = [v for g in graphs for v in g.get("tiers", ())]
    told = {
        "rounds": sum(storm.rounds),
        "compiles": storm.compiles,
        "reads": storm.read,
        "forks": arguments.forks,
        "graphs": len(graphs),
        "nodes": sorted({n["node"] for n in nodes}),
        "backwards": sum(n.get("backwards", 0) for n in nodes),
        "accumulated": sum(n.get("accumulated", 0) for n in nodes),
        "by_aten": sum(n.get("by_aten", 0) + n.get("stock_calls", 0) for n in nodes),
        "kept": sum("kept" in v for v in verdicts),
        "dropped": sum("dropped" in v for v in verdicts),
        "tier": verdicts[:3],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
