"""What training and serving scripts do with a model, against eager; every graph native (conftest.py)."""

import copy
import io
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plugin.checking import same_as_eager


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first, self.second = nn.Linear(width, 32), nn.Linear(32, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.second(F.gelu(self.first(x))))


def _pair(backend, make=Net, **options):
    """A model in eager, and the same compiled."""
    torch.manual_seed(0)
    eager = make()
    twin = copy.deepcopy(eager)
    return eager, twin, torch.compile(twin, backend=backend, **options)


def _same_parameters(a, b, **tolerance):
    for (name, p), q in zip(a.named_parameters(), b.parameters()):
        torch.testing.assert_close(p, q, msg=lambda m, name=name: f"{name}: {m}", **tolerance)


def _sgd(parameters):
    return torch.optim.SGD(parameters, 0.05, momentum=0.9)


def _train(model, steps=6, make=_sgd, each=lambda optimizer, step: None, clip=None, accumulate=1):
    optimizer = make(model.parameters())
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        x, y = torch.randn(8, 16, generator=generator), torch.randn(8, 16, generator=generator)
        loss = F.mse_loss(model(x), y) / accumulate
        loss.backward()
        losses.append(loss.item())
        if (step + 1) % accumulate == 0:
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
        each(optimizer, step)
    return losses


# --- precision ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_and_grad_scaler(dtype, backend):
    def run(model, parameters):
        scaler = torch.amp.GradScaler("cpu", enabled=True, init_scale=256.0)
        optimizer = torch.optim.SGD(parameters, 0.05)
        losses = []
        for step in range(4):
            x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
            with torch.autocast("cpu", dtype=dtype):
                loss = model(x).float().square().mean() * (1 + step)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses, scaler.get_scale()

    eager, twin, compiled = _pair(backend)
    (wanted, scale), (found, found_scale) = run(eager, eager.parameters()), run(compiled, twin.parameters())
    assert scale == found_scale
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_models_of_other_types(dtype, backend):
    model = Net().to(dtype)
    same_as_eager(model, torch.randn(8, 16, dtype=dtype), backend=backend, train=True)


# --- modes --------------------------------------------------------------------------------------------


def test_inference_mode_and_no_grad(backend):
    eager, _, compiled = _pair(backend)
    x = torch.randn(4, 16)
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            found, wanted = compiled(x), eager(x)
        torch.testing.assert_close(found, wanted)
        assert (found.requires_grad, found.is_inference()) == (wanted.requires_grad, wanted.is_inference())


def test_train_and_eval(backend):
    eager, twin, compiled = _pair(backend, lambda: nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.5)))
    x = torch.randn(8, 16)
    for training in (True, False, True):
        eager.train(training), compiled.train(training)
        torch.manual_seed(1)
        wanted = eager(x)
        torch.manual_seed(1)
        torch.testing.assert_close(compiled(x), wanted)
    torch.testing.assert_close(twin[1].running_mean, eager[1].running_mean)


def test_the_number_of_threads_changes_afterwards(backend):
    eager, _, compiled = _pair(backend, lambda: nn.Sequential(nn.Linear(256, 256), nn.Softmax(-1)))
    x, threads = torch.randn(512, 256), torch.get_num_threads()
    try:
        found = []
        for count in (threads, 1, 3, threads):
            torch.set_num_threads(count)
            found.append(compiled(x))
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(found[0], eager(x))
    assert all(torch.equal(found[0], f) for f in found[1:])


def test_generators(backend):
    def f(x, generator):
        return x + torch.rand(x.shape, generator=generator)

    x = torch.randn(8)
    compiled = torch.compile(f, backend=backend)
    for seed in (1, 2):
        torch.testing.assert_close(compiled(x, torch.Generator().manual_seed(seed)), f(x, torch.Generator().manual_seed(seed)))
    torch.manual_seed(5)
    state = torch.get_rng_state()
    drawn = torch.compile(lambda x: F.dropout(x, 0.5), backend=backend)(torch.ones(64))
    torch.set_rng_state(state)
    assert torch.equal(drawn, F.dropout(torch.ones(64), 0.5))


# --- functional transforms ------------------------------------------------------------------------------


def _function(x):
    return (x.sin() * x.exp()).sum()


@pytest.mark.parametrize("transformed", [
    lambda x: torch.func.grad(_function)(x),
    lambda x: torch.func.vmap(_function)(x),
    lambda x: torch.func.vmap(torch.func.grad(_function))(x),
    lambda x: torch.func.jvp(_function, (x,), (x + 1,))[1],
    lambda x: torch.func.vjp(torch.sin, x)[1](x)[0],
    lambda x: torch.func.jacrev(lambda y: (y * y).cos())(x[0]),
    lambda x: torch.func.jacfwd(lambda y: (y * y).cos())(x[0]),
    lambda x: torch.func.hessian(_function)(x[0]),
], ids=["grad", "vmap", "vmap of grad", "jvp", "vjp", "jacrev", "jacfwd", "hessian"])  # fmt: skip
def test_functional_transforms(transformed, backend):
    same_as_eager(transformed, torch.randn(3, 5), backend=backend)


def test_a_whole_step_in_one_graph(backend, graphs_ran_natively):
    """Forward, backward and update."""
    model = Net()
    names = [name for name, _ in model.named_parameters()]

    def step(parameters, momentum, x, y):
        loss = lambda ps: F.mse_loss(torch.func.functional_call(model, dict(zip(names, ps)), (x,)), y)
        gradients, value = torch.func.grad_and_value(loss)(parameters)
        momentum = [0.9 * m + g for m, g in zip(momentum, gradients)]
        return [p - 0.1 * m for p, m in zip(parameters, momentum)], momentum, value

    compiled = torch.compile(step, backend=backend)
    states = []
    for run in (step, compiled):
        parameters = [p.detach().clone() for p in model.parameters()]
        momentum = [torch.zeros_like(p) for p in parameters]
        for seed in range(3):
            x = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))
            parameters, momentum, value = run(parameters, momentum, x, x.flip(0))
        states.append((*parameters, value))
    torch.testing.assert_close(states[1], states[0])
    assert len(graphs_ran_natively) == 1


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * ctx.scale * g, None


def test_custom_autograd_functions(backend):
    same_as_eager(lambda x: _Square.apply(x.sin(), 3.0).sum(), torch.randn(8, requires_grad=True), backend=backend, train=True)


# --- training scripts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [
    {"clip": 0.1},
    {"accumulate": 2},
    {"make": lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1)},
    {"make": lambda p: torch.optim.RMSprop(p, 1e-3)},
], ids=["clipping", "accumulation", "AdamW", "RMSprop"])  # fmt: skip
def test_training_loops(arguments, backend):
    eager, twin, compiled = _pair(backend)
    torch.testing.assert_close(_train(compiled, **arguments), _train(eager, **arguments))
    _same_parameters(twin, eager, rtol=1e-4, atol=1e-5)


def test_schedulers_and_an_averaged_model(backend):
    eager, twin, compiled = _pair(backend)
    averages = []
    for model, inner in ((compiled, twin), (eager, eager)):
        average = torch.optim.swa_utils.AveragedModel(inner, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        schedulers = {}

        def each(optimizer, step, schedulers=schedulers, average=average, inner=inner):
            schedulers.setdefault(0, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)).step()
            average.update_parameters(inner)

        _train(model, make=lambda p: torch.optim.SGD(p, 0.01), each=each)
        averages.append(average)
    _same_parameters(twin, eager, rtol=1e-4, atol=1e-5)
    _same_parameters(*averages, rtol=1e-4, atol=1e-5)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.embedding(ids).tanh())


def test_tied_weights(backend):
    eager, twin, compiled = _pair(backend, Tied)
    for model, parameters in ((eager, eager), (compiled, twin)):
        optimizer = torch.optim.SGD(parameters.parameters(), 0.1)
        for seed in range(3):
            ids = torch.randint(0, 50, (4, 7), generator=torch.Generator().manual_seed(seed))
            F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert twin.head.weight is twin.embedding.weight
    _same_parameters(twin, eager, rtol=1e-4, atol=1e-5)


def test_module_hooks(backend):
    seen = {"eager": [], "compiled": []}
    eager, twin, compiled = _pair(backend)
    for name, model in (("eager", eager), ("compiled", twin)):
        log = seen[name].append
        model.first.register_forward_pre_hook(lambda m, args, log=log: (args[0] * 2,))
        model.second.register_forward_hook(lambda m, args, out, log=log: out + 1)
        model.first.weight.register_hook(lambda g, log=log: log(g.norm().item()) or g * 0.5)
        model.second.weight.register_post_accumulate_grad_hook(lambda p, log=log: log(p.grad.norm().item()))
    x = torch.randn(4, 16)
    for model in (eager, compiled):
        model(x).square().sum().backward()
    torch.testing.assert_close(sorted(seen["compiled"]), sorted(seen["eager"]), rtol=1e-2, atol=1e-5)  # of sums that cancel
    torch.testing.assert_close([p.grad for p in twin.parameters()], [p.grad for p in eager.parameters()], rtol=1e-3, atol=1e-5)


# --- models as objects ------------------------------------------------------------------------------------


def test_state_dict_deepcopy_and_pickle(backend):
    eager, twin, compiled = _pair(backend)
    x = torch.randn(4, 16)
    wanted = eager(x)
    torch.testing.assert_close(compiled(x), wanted)
    other = torch.compile(Net(), backend=backend)
    other.load_state_dict(compiled.state_dict())
    torch.testing.assert_close(other(x), wanted)
    torch.testing.assert_close(copy.deepcopy(compiled)(x), wanted)
    file = io.BytesIO()
    torch.save(compiled.state_dict(), file)
    file.seek(0)
    fresh = Net()
    fresh.load_state_dict({k.removeprefix("_orig_mod."): v for k, v in torch.load(file).items()})
    torch.testing.assert_close(torch.compile(fresh, backend=backend)(x), wanted)
    torch.testing.assert_close(torch.compile(pickle.loads(pickle.dumps(twin)), backend=backend)(x), wanted)


def test_compiled_within_compiled(backend):
    inner = torch.compile(nn.Linear(16, 16), backend=backend)
    outer = nn.Sequential(inner, nn.GELU(), torch.compile(nn.Linear(16, 4), backend=backend))
    x = torch.randn(5, 16)
    wanted = nn.Sequential(inner._orig_mod, nn.GELU(), outer[2]._orig_mod)(x)
    torch.testing.assert_close(torch.compile(outer, backend=backend)(x), wanted)
    torch.testing.assert_close(outer(x), wanted)


def test_parameters_that_are_replaced(backend):
    eager, twin, compiled = _pair(backend)
    x = torch.randn(4, 16)
    compiled(x)
    for model in (eager, twin):
        with torch.no_grad():
            model.first.weight.mul_(2)
        model.second.weight = nn.Parameter(torch.full((16, 32), 0.1))
    torch.testing.assert_close(compiled(x), eager(x))


def test_exported_programs(backend):
    model, x = Net().eval(), torch.randn(4, 16)
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(torch.compile(program.module(), backend=backend)(x), model(x))


# --- around the process -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers(method, tmp_path, backend):
    """Workers that start when programs have been compiled, and that compile themselves."""
    script = tmp_path / "loader.py"
    script.write_text(textwrap.dedent(f"""
        import torch
        from torch.utils.data import DataLoader, Dataset

        def scale(x):
            return (x * 2).sin()

        class Data(Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                return torch.compile(scale, backend={backend!r})(torch.full((16,), float(index)))

        if __name__ == "__main__":
            model = torch.nn.Linear(16, 4)
            compiled = torch.compile(model, backend={backend!r})
            compiled(torch.randn(4, 16)).sum().backward()
            found = list(DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context={method!r}))
            wanted = scale(torch.arange(8.0)[:, None].expand(8, 16))
            torch.testing.assert_close(torch.cat(found), wanted)
            torch.testing.assert_close(compiled(found[0]), model(found[0]))
            print("all right")
    """))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240)
    assert "all right" in done.stdout, done.stderr[-3000:]


def test_the_profiler_sees_programs(backend):
    compiled = torch.compile(Net(), backend=backend)
    x = torch.randn(4, 16)
    compiled(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        compiled(x).sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert any("fusion" in name for name in names), sorted(names)
