"""Rows in JAX: the exported program under jax.jit; training is jax's own gradient of it and an optimizer as jax's users write one."""

import exported
import jax
import jax.numpy as jnp
import jax_ops
import ml_dtypes
import numpy
import torch
from torch.export.graph_signature import InputKind, OutputKind

jax.config.update("jax_enable_x64", True)  # int64 is what PyTorch's indices are; every array here has its dtype said
jax.config.update("jax_platforms", "cpu")


def to_jax(tensor: torch.Tensor) -> jax.Array:
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return jnp.array(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return jnp.array(tensor.numpy())


def to_torch(array) -> torch.Tensor:
    copy = numpy.array(array)
    if copy.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(copy.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(copy)


class Program:
    """An exported program as a function of (state by name, inputs): parameters, buffers and constants are its state."""

    def __init__(self, module, args):
        program = exported.export(module, args).run_decompositions()
        if lacking := jax_ops.missing(program.graph):
            raise exported.NotExpressible(", ".join(lacking))
        self.graph, self.signature = program.graph, program.graph_signature
        self.out_spec = program.call_spec.out_spec
        self.state, self.parameters, self.places = {}, [], []
        for spec in self.signature.input_specs:
            self.places.append(None if spec.kind == InputKind.USER_INPUT else spec.target)
            if spec.kind == InputKind.USER_INPUT:
                continue
            holder = program.state_dict if spec.target in program.state_dict else program.constants
            self.state[spec.target] = to_jax(holder[spec.target])
            self.parameters += [spec.target] if spec.kind == InputKind.PARAMETER else []
        self.changed = [s.target for s in self.signature.output_specs if s.kind == OutputKind.BUFFER_MUTATION]
        if any(s.kind == OutputKind.USER_INPUT_MUTATION for s in self.signature.output_specs):
            raise exported.NotExpressible("an input that the row writes to")

    def __call__(self, state: dict, inputs: list) -> tuple[list, dict]:
        """(the row's outputs, flat; the buffers that changed)."""
        rest = iter(inputs)
        out = jax_ops.run(self.graph, [next(rest) if place is None else state[place] for place in self.places])
        count = len(self.changed)
        return out[count:], dict(zip(self.changed, out[:count]))


class JaxStep(exported.ExportedStep):
    """A compiled function (carried, fixed, inputs) -> (carried, outputs): what a call changes is carried and donated."""

    def build(self) -> None:
        with self.phase("export"):
            step, self.carried, self.fixed = getattr(self, f"_{self.row.mode}")()
            self.inputs = [to_jax(arg) for arg in self.args] if self.row.mode != "optimizer" else []
        with self.phase("trace"):
            lowered = jax.jit(step, donate_argnums=(0,)).lower(self.carried, self.fixed, self.inputs)
        with self.phase("compile"):
            self.compiled = lowered.compile()

    def run(self):
        self.carried, out = self.compiled(self.carried, self.fixed, self.inputs)
        jax.block_until_ready((self.carried, out))
        return out

    def _infer(self):
        """Weights are operands, not constants of the executable: what jax's users pass, and what eager reads."""
        program = Program(self.module, self.args)
        fixed = dict(program.state)
        carried = {name: fixed.pop(name) for name in program.changed}

        def infer(carried, fixed, inputs):
            out, changed = program(fixed | carried, inputs)
            return changed, out

        return infer, carried, fixed

    def _train(self):
        program = Program(self.module, self.args)
        fixed = dict(program.state)
        parameters = {name: fixed.pop(name) for name in program.parameters}
        buffers = {name: fixed.pop(name) for name in program.changed}
        update, slots = optimizer(self.row, parameters)

        def train(carried, fixed, inputs):
            parameters, buffers, slots = carried

            def loss(parameters):
                (value,), changed = program(parameters | buffers | fixed, inputs)
                return value, changed

            (value, changed), grads = jax.value_and_grad(loss, has_aux=True)(parameters)
            parameters, slots = update(parameters, grads, slots)
            return (parameters, changed, slots), (value, grads)  # PyTorch keeps the gradients too

        return train, (parameters, buffers, slots), fixed

    def _optimizer(self):
        model = self.module.target
        parameters = {name: to_jax(p) for name, p in model.named_parameters()}
        grads = dict(zip(parameters, map(to_jax, self.args), strict=True))
        self.names = list(parameters)  # jax hands dicts back sorted
        update, slots = optimizer(self.row, parameters)

        def step(carried, grads, inputs):
            return update(carried[0], grads, carried[1]), ()

        return step, (parameters, slots), grads

    def values(self):
        if self.row.mode == "infer":
            return [to_torch(value) for value in self.first]
        if self.row.mode == "train":
            value, grads = self.first
            names = [name for name, _ in self.module.named_parameters()]
            return [to_torch(value), [to_torch(grads[name]) for name in names]]
        for _ in range(2):  # as step.Step does
            self.run()
        return [to_torch(self.carried[0][name]) for name in self.names]


def optimizer(row, parameters: dict):
    """(update(parameters, grads, slots) -> (parameters, slots), slots) with the settings of the row's torch optimizer."""
    like = row.optimizer([torch.nn.Parameter(torch.zeros(1))])
    group = like.param_groups[0]
    if isinstance(like, torch.optim.SGD) and not (group["momentum"] or group["weight_decay"] or group["nesterov"]):
        return _sgd(group["lr"]), ()
    if isinstance(like, torch.optim.Adam) and not (group["amsgrad"] or group["maximize"]):
        zeros = {name: jnp.zeros_like(p) for name, p in parameters.items()}
        decay = group["weight_decay"]
        if decay and not isinstance(like, torch.optim.AdamW):
            raise exported.NotExpressible("Adam with weight decay in the gradient")
        copies = jax.tree_util.tree_map(jnp.copy, zeros)  # donated memory must not be shared
        return _adam(group["lr"], *group["betas"], group["eps"], decay), (jnp.zeros((), jnp.float32), zeros, copies)
    raise exported.NotExpressible(f"the optimizer {type(like).__name__} with these settings")


def _sgd(lr):
    def update(parameters, grads, slots):
        return {name: p - lr * grads[name] for name, p in parameters.items()}, slots

    return update


def _adam(lr, beta1, beta2, eps, decay):
    """Adam, and AdamW with decay; Kingma & Ba 2015, Loshchilov & Hutter 2019, epsilon where PyTorch has it."""

    def update(parameters, grads, slots):
        count, first, second = slots
        count = count + 1
        scale1, scale2 = 1 - beta1**count, 1 - beta2**count
        first = {name: beta1 * m + (1 - beta1) * grads[name] for name, m in first.items()}
        second = {name: beta2 * v + (1 - beta2) * grads[name] ** 2 for name, v in second.items()}

        def moved(name, p):
            step = (lr / scale1) * first[name] / (jnp.sqrt(second[name]) / jnp.sqrt(scale2) + eps)
            return (p * (1 - lr * decay) if decay else p) - step

        return {name: moved(name, p) for name, p in parameters.items()}, (count, first, second)

    return update
