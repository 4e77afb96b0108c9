"""Do rows give the same bits on 1, 2 and 3 threads?

    PYTHONPATH=build/release/python python benchmarks/same_bits.py [--rows a,b] [--training]

Every row of rows.py that is inference (or, with --training, its step's loss and gradients) is compiled and run with each number of
threads; contractions are generated (a library's sums may hang on how it shares them). Prints a line for each row; exits with 1 if one
differs.
"""

import argparse
import sys

import environment

environment.find_packages()
import rows
import torch
import torch_tenon
from step import Step
from torch.utils._pytree import tree_leaves

THREADS = (1, 2, 3)


def bits(step):
    """What the call gives, and the gradients that it leaves, as bytes."""
    with torch.set_grad_enabled(step.row.mode != "infer"):
        found = tree_leaves(step.run())
    if step.row.mode == "train":
        found += [p.grad for p in step.model.parameters() if p.grad is not None]
    if step.row.mode == "optimizer":
        found = list(step.model.parameters())
    return [t.detach().clone() for t in found if isinstance(t, torch.Tensor)]


def same(a, b):
    as_bytes = lambda t: t.contiguous().reshape(-1).view(torch.uint8)
    return len(a) == len(b) and all(torch.equal(as_bytes(x), as_bytes(y)) for x, y in zip(a, b))


def steps_left():
    """The library's and PyTorch's own steps that ran: their bits are not tenon's."""
    return sorted({name for g in torch_tenon.stats()["graphs"] if g["calls"] > 0 for name in g["aten_steps"]})


def of_row(name):
    row = rows.ROWS[name]
    found = []
    for threads in THREADS:
        torch.set_num_threads(THREADS[0])  # models are made, and their batch norms' statistics, by ATen
        torch.manual_seed(0)
        torch._dynamo.reset()
        torch_tenon.reset_stats()
        options = {"provider": "generated", "sizes": "one"}
        step = Step(row, lambda f: torch.compile(f, backend="tenon", dynamic=False, options=options))
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        found.append(bits(step))
    return all(same(found[0], f) for f in found[1:]), len(found[0]), steps_left()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help="names, with commas; default: all that this says")
    parser.add_argument("--training", action="store_true", help="training steps and optimizers instead of inference")
    args = parser.parse_args()
    wanted = args.rows.split(",") if args.rows else [n for n, r in rows.ROWS.items() if (r.mode != "infer") == args.training]
    differ = 0
    for name in wanted:
        equal, values, left = of_row(name)
        differ += not equal
        by_aten = f"; by ATen: {', '.join(left)}" if left else ""
        print(f"{name:28s} {values:4d} values  {'same' if equal else 'DIFFERENT'}{by_aten}", flush=True)
    print(f"{len(wanted)} rows on {THREADS} threads, {differ} differ; torch {torch.__version__}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
