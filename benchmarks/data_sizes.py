"""Models whose sizes data decide: in parts, with Dynamo's graph breaks instead, and by the peers; all over the same calls.

    PYTHONPATH=build/release/python .venv/bin/python benchmarks/data_sizes.py [--rows experts,padding,boxes] [--blocks 15] [--no-inductor]

A pass calls the model with six numbers of rows; passes of the peers alternate in blocks, after one of each that compiles. Times are told in
passes of eager: the median of the blocks' ratios, the smallest and the largest.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

import torch
import torch.nn.functional as F
import torch_tenon  # noqa: F401
from environment import find_packages, machine, reexec_pinned
from torch import nn

ROWS_OF_A_CALL = (500, 700, 640, 512, 333, 801)
CAPTURED = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}


class Experts(nn.Module):
    """A mixture of four gated experts of 128 x 256: each takes the rows that were sent to it."""

    def __init__(self):
        super().__init__()
        self.gate, self.norm = nn.Linear(128, 4, bias=False), nn.LayerNorm(128)
        self.up, self.side = nn.Parameter(torch.randn(4, 128, 256) / 20), nn.Parameter(torch.randn(4, 128, 256) / 20)
        self.down = nn.Parameter(torch.randn(4, 256, 128) / 20)

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(1).max(1)
        out = torch.zeros_like(x)
        for k in range(4):
            rows = (chosen == k).nonzero().squeeze(1)
            taken = x[rows]
            made = (F.silu(taken @ self.up[k]) * (taken @ self.side[k])) @ self.down[k]
            out = out.index_add(0, rows, made * weight[rows, None])
        return self.norm(out + x)


class Padding(nn.Module):
    """A block over the rows that are no padding, three of ten are."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(128)

    def forward(self, x):
        rows = x[x.abs().sum(1) > 0]
        rows = F.gelu(self.norm(rows) * 2 + 1) * rows.sigmoid()
        return (rows - rows.mean(0)).softmax(1)


class Boxes(nn.Module):
    """Detections above a score, in order, and how much each two overlap."""

    def forward(self, x):
        found = x[(x[:, 4] > 0.5).nonzero().squeeze(1)]
        low, high = found[:, :2], found[:, :2] + found[:, 2:4].abs()
        shared = (torch.minimum(high[:, None], high) - torch.maximum(low[:, None], low)).clamp(min=0).prod(2)
        area = (high - low).prod(1)
        return found, shared / (area[:, None] + area - shared + 1e-6)


ROWS = {"experts": Experts, "padding": Padding, "boxes": Boxes}


def _inputs() -> list[torch.Tensor]:
    return [torch.randn(n, 128) * (torch.rand(n, 1) > 0.3) for n in ROWS_OF_A_CALL]


def measure(name: str, blocks: int, inductor: bool) -> str:
    torch.manual_seed(0)
    model, inputs = ROWS[name]().eval(), _inputs()

    def compiled(backend: str, **how):
        copied = ROWS[name]().eval()
        copied.load_state_dict(model.state_dict())
        return torch.compile(copied, backend=backend, dynamic=True, **how)

    peers = {"eager": model, "tenon": compiled("tenon", fullgraph=True), "tenon_breaks": compiled("tenon")}
    if inductor:
        peers["inductor"] = compiled("inductor", fullgraph=True)

    def one_pass(peer: str) -> float:
        with torch._dynamo.config.patch({} if peer == "tenon_breaks" else CAPTURED):
            began = time.perf_counter()
            for x in inputs:
                peers[peer](x)
            return time.perf_counter() - began

    with torch.no_grad():
        first = {peer: one_pass(peer) for peer in peers}
        for peer in peers:
            with torch._dynamo.config.patch({} if peer == "tenon_breaks" else CAPTURED):
                torch.testing.assert_close(peers[peer](inputs[0]), model(inputs[0]), rtol=1e-3, atol=1e-4)
        ratios: dict[str, list[float]] = {peer: [] for peer in peers if peer != "eager"}
        times = []
        for block in range(blocks):
            took = {peer: one_pass(peer) for peer in (peers if block % 2 else reversed(peers))}
            times.append(took["eager"])
            for peer, found in ratios.items():
                found.append(took[peer] / took["eager"])
    told = " | ".join(f"{statistics.median(r):.3f} ({min(r):.2f} - {max(r):.2f}), {first[peer]:.1f} s" for peer, r in ratios.items())
    return f"| {name} | {1e6 * statistics.median(times) / len(inputs):.0f} us | {told} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--no-inductor", action="store_true")
    arguments = parser.parse_args()
    reexec_pinned(2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    print(machine(2))
    peers = ["tenon", "tenon, graph breaks"] + ([] if arguments.no_inductor else ["inductor"])
    print("| row | eager, a call | " + " | ".join(f"{p}, first pass" for p in peers) + " |\n|" + "---|" * (2 + len(peers)))
    for name in arguments.rows.split(","):
        print(measure(name, arguments.blocks, not arguments.no_inductor), flush=True)


if __name__ == "__main__":
    find_packages()
    main()
