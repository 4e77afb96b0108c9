"""Graphs retargeted to CUDA (torch_plugin/aten/retarget.h) against PyTorch's own schemas and meta functions.

No GPU is needed for either.
"""

import os
import pathlib
import re
import subprocess

import torch

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "s64": torch.int64, "u64": torch.uint64}
SHORT = {dtype: name for name, dtype in NAMES.items()}
META = re.compile(r"(\w+)\[([\d,]*)\]\{([\d,]*)\} on \"cuda:0\"|none|symint (\d+)")


def tool():
    package = pathlib.Path(pytest.importorskip("torch_tenon").__file__).parent
    for folder in (package.parents[1] / "bin", *(ROOT / "build").glob("*/bin")):
        if os.access(folder / "gpu-report", os.X_OK):
            return folder / "gpu-report"
    pytest.skip("no gpu-report beside torch_tenon, nor in build/*/bin")


def meta_text(t):
    return f"{SHORT[t.dtype]}[{','.join(map(str, t.shape))}]{{{','.join(map(str, t.stride()))}}}"


def retargeted(tmp_path, text):
    path = tmp_path / "graph.aten"
    path.write_text(text)
    told = subprocess.run([tool(), "--retarget", path], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def results_of(text, op):
    """What the graph says that the node of `op` gives."""
    line = next(line for line in text.splitlines() if f" = {op}(" in line)
    found = []
    for match in META.finditer(line.split(") -> ", 1)[1]):
        if match[0] == "none":
            found.append(None)
        elif match[4]:
            found.append(int(match[4]))
        else:
            numbers = [tuple(int(n) for n in match[k].split(",") if n) for k in (2, 3)]
            found.append((NAMES[match[1]], *numbers))
    return found


def facts(values):
    return [(v.dtype, tuple(v.shape), v.stride()) if isinstance(v, torch.Tensor) else v for v in values]


def attention_graph(q, k, mask, wants_sums):
    cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, sums = cpu(q, k, k, attn_mask=mask)
    grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(q, q, k, k, out, sums, 0.0, False, attn_mask=mask)
    given = f"  %m = input {meta_text(mask)}\n" if mask is not None else ""
    name = "%m" if mask is not None else "none"
    backward = (
        "  %a, %b, %c = aten._scaled_dot_product_flash_attention_for_cpu_backward.default("
        f"%q, %q, %k, %k, %out, %sums, 0.0, false, {name}, none)"
        f" -> {', '.join(map(meta_text, grads))}\n"
    )
    return (
        f'graph "g" {{\n  %q = input {meta_text(q)}\n  %k = input {meta_text(k)}\n{given}'
        f"  %out, %sums = aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %k, %k, 0.0, false, {name}, none)"
        f" -> {meta_text(out)}, {meta_text(sums)}\n{backward if wants_sums else ''}"
        f"  return (%out{', %a, %b, %c' if wants_sums else ''})\n}}\n"
    )


@pytest.mark.parametrize("wants_sums", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_attention_gives_what_cudas_gives(tmp_path, dtype, transposed, masked, wants_sums):
    aten = torch.ops.aten
    q = torch.empty(2, 24, 4, 32, device="meta", dtype=dtype).transpose(1, 2)
    k = torch.empty(2, 4, 48, 32, device="meta", dtype=dtype)
    if transposed:
        k = torch.empty(2, 48, 3, 4, 32, device="meta", dtype=dtype)[:, :, 1].transpose(1, 2)
    mask = torch.empty(2, 1, 24, 48, device="meta", dtype=dtype) if masked else None
    text = retargeted(tmp_path, attention_graph(q, k, mask, wants_sums))
    if dtype != torch.float32 and not masked:
        made = aten._scaled_dot_product_flash_attention(q, k, k)
        assert results_of(text, "aten._scaled_dot_product_flash_attention.default") == facts(made)
        if wants_sums:
            out, sums, cum_q, cum_k, max_q, max_k, state, unused, _ = made
            grads = aten._scaled_dot_product_flash_attention_backward(
                q, q, k, k, out, sums, cum_q, cum_k, max_q, max_k, 0.0, False, state, unused
            )
            assert results_of(text, "aten._scaled_dot_product_flash_attention_backward.default") == facts(grads)
        return
    bias = None if mask is None else mask.expand(2, 4, 24, 48)
    made = aten._scaled_dot_product_efficient_attention(q, k, k, bias, wants_sums)
    assert results_of(text, "aten._scaled_dot_product_efficient_attention.default") == facts(made)
    if wants_sums:
        grads = aten._scaled_dot_product_efficient_attention_backward(
            q, q, k, k, bias, *made, 0.0, [True, True, True, False], False
        )
        assert results_of(text, "aten._scaled_dot_product_efficient_attention_backward.default") == facts(grads)


def factories():
    """Overload -> place of the device, as retarget.cc has them."""
    source = (ROOT / "torch_plugin/aten/retarget.cc").read_text()
    rows = source.split("kFactories[] = {", 1)[1].split("};", 1)[0]
    return {name: int(place) for name, place in re.findall(r'\{"([\w.]+)", (\d+)\}', rows)}


def overload(name):
    namespace, op, which = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), op), which)
    except AttributeError:
        return None


def test_factories_are_those_of_the_schemas():
    known = set(re.findall(r'^ATEN_\w+\("([\w.]+)"', (ROOT / "torch_plugin/aten/aten.def").read_text(), re.M))
    wanted = {}
    for name in known:
        arguments = overload(name)._schema.arguments if overload(name) else []
        places = [i for i, a in enumerate(arguments) if a.name == "device"]
        if places and not any("Tensor" in str(a.type) for a in arguments):
            wanted[name] = places[0]
    assert len(wanted) > 10
    assert factories() == wanted
