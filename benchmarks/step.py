"""One peer's timed unit of a row: what runs, how long it takes, and the values by which it is judged.

All steps have what `Step` has: first_call(), once, before anything else; phases() of it; values(); timed().
"""

import concurrent.futures
import ctypes
import functools
import time

import rows
import torch


class Step:
    """By PyTorch: eager, or what `compiled` makes of the callable. `compiler` names whose phases are asked for."""

    graphs: int | None = None  # that reached a backend; None: not a question for this peer

    def __init__(self, row, compiled=lambda target: target, compiler: str = "", dtype=None):
        model, args = row.make()
        self.row, self.compiler, self.model = row, compiler, rows.own_code(model)
        if dtype is not None:
            args = self._convert(args, dtype)
        self.args = args
        if isinstance(self.model, torch.nn.Module):
            self.model.train(row.mode == "train")
        if row.mode == "optimizer":
            for parameter, grad in zip(self.model.parameters(), self.args, strict=True):
                parameter.grad = grad.clone()
            self.optimizer = row.optimizer(self.model.parameters())
            self.run = compiled(self.optimizer.step)
            return
        self.callee = compiled(self.model)
        # As little Python as possible around the call: small rows time microseconds.
        self.run = functools.partial(self.callee, *self.args)
        if row.mode == "train":
            self.optimizer = row.optimizer(self.model.parameters())
            self.run = self._train

    def _convert(self, args, dtype):
        convert = lambda t: t.to(dtype) if t.is_floating_point() else t
        if isinstance(self.model, torch.nn.Module):
            self.model = self.model.to(dtype)
        elif self.model.__closure__:  # a function's captured tensors are operands as well
            for cell in self.model.__closure__:
                if isinstance(cell.cell_contents, torch.Tensor):
                    cell.cell_contents = convert(cell.cell_contents)
        return tuple(convert(t.detach()).requires_grad_(t.requires_grad) for t in args)

    def _train(self):
        self.optimizer.zero_grad()
        loss = self.row.loss(self.callee(*self.args))
        loss.backward()
        self.optimizer.step()
        return loss

    def first_call(self) -> None:
        if self.compiler:
            torch._dynamo.utils.clear_compilation_metrics()
        with torch.set_grad_enabled(self.row.mode != "infer"):
            self.first = self.run()

    def phases(self, first_s: float) -> dict[str, float]:
        """Seconds of the first call by who spent them; asked right after it."""
        if not self.compiler:
            return {}
        found, self.graphs = compile_phases(self.compiler, first_s)
        return found

    def timed(self, count: int) -> float:
        """Seconds per call over `count` calls."""
        run = self.run
        with torch.set_grad_enabled(self.row.mode != "infer"):
            began = time.perf_counter()
            for _ in range(count):
                run()
            return (time.perf_counter() - began) / count

    def values(self):
        """What accuracy is judged on: outputs, and gradients where the row has them. Of the first call."""
        out, self.first = self.first, None
        if self.row.mode == "infer":
            return out
        if self.row.mode == "optimizer":  # the first steps, of which all but one have the state of others
            for _ in range(2):
                self.run()
            return [p.detach().clone() for p in self.model.parameters()]
        if self.row.mode == "train":
            return [out.detach(), [p.grad.clone() for p in self.model.parameters()]]
        leaf = out if isinstance(out, torch.Tensor) else out[0]
        return [leaf.detach(), torch.autograd.grad(leaf.sum(), self.args[0])[0]]


def compile_phases(compiler: str, first_s: float) -> tuple[dict[str, float], int]:
    """(seconds by phase, graphs that reached the backend) since Dynamo's metrics were cleared.

    Dynamo: frames without their backends. AOTAutograd: backends, and backwards that compile when they first
    run, without the compiler. `run` is the rest of the first call.
    """
    metrics = torch._dynamo.utils.get_compilation_metrics()
    total = lambda field: sum(getattr(m, field) or 0 for m in metrics)
    frames, backends = total("entire_frame_compile_time_s"), total("backend_compile_time_s")
    backward = total("backward_cumulative_compile_time_us") / 1e6
    if compiler == "tenon":
        import torch_tenon

        graphs = torch_tenon.stats()["graphs"]
        sum_of = lambda phase: sum(graph["compile_ms"].get(phase, 0.0) for graph in graphs) / 1e3
        own = {"tenon": sum_of("total") - sum_of("llvm"), "llvm": sum_of("llvm")}
        count = len(graphs)
    else:
        own = {compiler: total("inductor_compile_time_s")}
        count = sum(1 for m in metrics if m.inductor_compile_time_s)
    phases = {
        "dynamo": frames - backends,
        "aot": backends + backward - sum(own.values()),
        **own,
        "run": first_s - frames - backward,
    }
    return {name: max(0.0, seconds) for name, seconds in phases.items()}, count


class ReadProbe:
    """Reads `size` bytes with all threads at once: memchr of what isn't there, a share each."""

    def __init__(self, size: int, threads: int):
        libc = ctypes.CDLL(None)
        libc.memchr.argtypes, libc.memchr.restype = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], ctypes.c_void_p
        self.buffer = ctypes.create_string_buffer(size)
        ctypes.memset(self.buffer, 1, size)  # pages of its own
        base, share = ctypes.addressof(self.buffer), size // threads
        self.parts = [(base + i * share, share) for i in range(threads)]
        self.read = lambda part: libc.memchr(part[0], 0, part[1])  # ctypes lets go of the GIL
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)

    def timed(self, count: int) -> float:
        """Seconds per read over `count` reads."""
        began = time.perf_counter()
        for _ in range(count):
            list(self.pool.map(self.read, self.parts))
        return (time.perf_counter() - began) / count
