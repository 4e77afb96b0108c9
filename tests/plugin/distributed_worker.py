"""test_distributed.py's processes: a case of parallel training on gloo, eager and compiled, side by side; prints what ran.

python distributed_worker.py CASE STORE"""

import copy
import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

WORLD = 2


class Block(nn.Module):
    """A transformer's block whose heads can be parted."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.head = width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.out((torch.softmax(q @ k.transpose(-1, -2) / self.head**0.5, -1) @ v).transpose(1, 2).flatten(2))

    def feed(self, x):
        return self.down(nn.functional.gelu(self.up(x)))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.feed(self.norm2(x))


def tensor_parallel(mesh):
    by_columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    return lambda model: parallelize_module(model, mesh, {**by_columns, "out": RowwiseParallel(), "down": RowwiseParallel()})


class Feed(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


def sequence_parallel(mesh):
    """Rows of the sequence are parted where the norm is, features where the products are: gathered and scattered in between."""
    plan = {
        "norm": SequenceParallel(),
        "up": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
    }
    products = {"up": ColwiseParallel(), "down": RowwiseParallel(output_layouts=Replicate())}
    return lambda model: parallelize_module(parallelize_module(model, mesh, plan), mesh, products)


def sharded(mesh):
    def shard(model):
        for layer in model.children():
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    return shard


CASES = {
    "tensor parallel": (Block, tensor_parallel),
    "sequence parallel": (Feed, sequence_parallel),
    "fully sharded": (lambda: nn.Sequential(Feed(), Feed()), sharded),
}


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def train(case, mesh):
    make, planner = CASES[case]
    part = planner(mesh)
    torch.manual_seed(0)
    alone = make()
    eager, twin = part(copy.deepcopy(alone)), part(copy.deepcopy(alone))
    call = torch.compile(twin, backend="tenon")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (alone, eager, twin)]
    torch.manual_seed(1)
    for _ in range(3):
        x = torch.randn(2, 8, 32)
        for run, optimizer in zip((alone, eager, call), optimizers):
            optimizer.zero_grad()
            loss = whole(run(x)).square().mean()
            loss.backward()
            optimizer.step()
    gradients = [{name: whole(p.grad) for name, p in m.named_parameters()} for m in (alone, eager, twin)]
    parameters = [{name: whole(p.detach()) for name, p in m.named_parameters()} for m in (alone, eager, twin)]
    for name in parameters[0]:
        for found in (gradients, parameters):
            torch.testing.assert_close(found[2][name], found[1][name], rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(found[2][name], found[0][name], rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(whole(call(x)), whole(eager(x)), rtol=1e-4, atol=1e-6)


def redistribute(mesh):
    """DTensors as inputs and outputs, and changes of their placement inside."""

    def f(a, b):
        c = (a @ b).redistribute(mesh, [Replicate()])
        return (c.softmax(-1) * 2).redistribute(mesh, [Shard(1)]), c.sum()

    torch.manual_seed(0)
    a, b = torch.randn(6, 8), torch.randn(8, 4)
    placed = lambda: (
        distribute_tensor(a, mesh, [Shard(1)]).requires_grad_(), distribute_tensor(b, mesh, [Shard(0)]).requires_grad_())
    compiled = torch.compile(f, backend="tenon")
    for _ in range(2):
        results = []
        for run in (f, compiled):
            inputs = placed()
            outputs = run(*inputs)
            (outputs[0].square().sum() + outputs[1]).backward()
            assert outputs[0].placements == (Shard(1),) and outputs[0].device_mesh == mesh
            results.append([whole(t.detach()) for t in (*outputs, *(i.grad for i in inputs))])
        for found, wanted in zip(*reversed(results)):
            torch.testing.assert_close(found, wanted)


def work(rank, case, store):
    dist.init_process_group("gloo", store=dist.FileStore(store, WORLD), rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    import torch_tenon

    mesh = init_device_mesh("cpu", (WORLD,))
    redistribute(mesh) if case == "redistribute" else train(case, mesh)
    dist.barrier()
    if rank == 0:
        graphs = torch_tenon.stats()["graphs"]
        told = [{"kind": g["kind"], "tier": g["tier"], "reason": g["reason"], "kernels": g["kernels"],
                 "calls": {op: step["count"] for op, step in g["aten_steps"].items()}} for g in graphs]  # fmt: skip
        print(json.dumps(told), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, sys.argv[1:3], nprocs=WORLD)
