#!/usr/bin/env python3
"""Judges tiny random models of every architecture that `transformers` can build from a config, as tests/models judges its own.

    tools/dev/hunt_models.py                       every architecture, float32, inference and a training step
    tools/dev/hunt_models.py bert swin --bf16      two of them, bfloat16
    tools/dev/hunt_models.py --zoo                 the cases of tests/models instead
    tools/dev/hunt_models.py --build               only says which can be built and run by eager

One forked process a model, 90 s each (--seconds), --jobs at a time; a line of JSON each in --out. What is printed beside `ok` is the
share of the accuracy rule's bound that was used, and the ATen steps that are no library calls. An architecture that can't be guessed
(`skip`) is no problem of tenon's.
"""

import argparse
import inspect
import json
import os
import pathlib
import signal
import sys
import time
import traceback
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import torch  # noqa: E402
from torch import nn  # noqa: E402

# What a field of a config becomes, by its name; functions take the default.
WIDTH, HEADS, LENGTH = 64, 4, 16
SIZES = {
    "vocab_size": 128, "hidden_size": WIDTH, "d_model": WIDTH, "n_embd": WIDTH, "embedding_size": WIDTH, "word_embed_proj_dim": WIDTH,
    "intermediate_size": 96, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "d_ff": 96, "ffn_dim": 96, "mlp_dim": 96,
    "moe_intermediate_size": 48, "shared_expert_intermediate_size": 48, "n_inner": 96, "d_inner": 96, "expert_ffn_hidden_size": 48,
    "shared_intermediate_size": 48, "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "n_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "depth": 2, "num_decoder_layers": 2, "num_encoder_layers": 2, "block_sizes": [1, 1],
    "encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 1, "num_attention_heads": HEADS,
    "num_heads": lambda v: HEADS if isinstance(v, int) else v, "n_head": HEADS, "n_heads": HEADS, "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": 16, "d_head": 16, "d_kv": 16,
    "decoder_num_attention_heads": HEADS, "decoder_hidden_size": WIDTH, "decoder_intermediate_size": 96, "encoder_hidden_size": WIDTH,
    "q_lora_rank": lambda v: v and 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "qk_head_dim": 24, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 8, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "mamba_d_state": 16, "mamba_n_heads": 8, "mamba_d_head": 16,
    "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "state_size": 16, "time_step_rank": 8, "mamba_dt_rank": 8,
    "lru_width": WIDTH, "attention_window_size": 8, "chunk_size": 8, "mamba_chunk_size": 8, "hidden_dim": WIDTH, "emb_dim": WIDTH,
    "rotary_dim": 8, "num_experts": 4, "n_routed_experts": 4, "num_local_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "max_position_embeddings": lambda v: min(v, 256), "n_positions": 256,
    "n_ctx": 256, "image_size": lambda v: 32 if isinstance(v, int) else [32, 32],
    "patch_size": lambda v: min(v, 8) if isinstance(v, int) else [min(x, 8) for x in v], "projection_dim": 32, "out_hidden_size": WIDTH,
    "num_queries": 8, "encoder_hidden_dim": WIDTH, "decoder_hidden_dim": WIDTH, "max_source_positions": 32,
    "conv_dim": lambda v: [32] * len(v), "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
    "tdnn_dim": lambda v: [32] * len(v), "depths": lambda v: [1] * len(v), "hidden_sizes": lambda v: [max(x // 4, 8) for x in v],
    "encoder_channels": lambda v: [max(x // 4, 8) for x in v], "neck_hidden_sizes": lambda v: [max(x // 4, 8) for x in v],
    "embed_dim": 24, "decoder_embed_dim": WIDTH, "attention_window": 4, "block_size": 4, "num_random_blocks": 1,
    "attention_type": lambda v: v, "num_frames": 2, "sliding_window": lambda v: v and 8, "local_attention": 8, "fpn_hidden_size": 32,
    "layer_types": None, "num_codevectors_per_group": 8, "codevector_dim": 16, "proj_codevector_dim": 16, "codebook_size": 32,
    "num_buckets": 8, "layerdrop": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "drop_path_rate": 0.0,
    "initializer_range": 0.1, "init_std": 0.1, "layer_scale_init_value": lambda v: v and 0.5, "use_cache": False, "mask_time_prob": 0.0,
    "apply_spec_augment": False, "rank": 8, "num_register_tokens": lambda v: min(v, 2), "dim": WIDTH, "ff_size": 96, "emb_layers": 2,
    "latent_dim": 16, "num_filters": 8, "feature_size": 1, "prediction_length": 4, "context_length": 16, "num_latents": 8,
    "d_latents": WIDTH, "xpath_unit_hidden_size": 8, "hybrid_layer_ids": [1], "compressor_hidden_size": WIDTH,
    "stem_channels": lambda v: [x if x == 3 else 16 for x in v] if not isinstance(v, int) else 16,
}  # fmt: skip


def shrink(config):
    """The same kind of config with few and small layers, its derived fields derived anew."""
    from transformers import PretrainedConfig

    fields = inspect.signature(type(config).__init__).parameters
    given = {}
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            given[name] = shrink(value)
        elif name.endswith("_token_id") and isinstance(value, int) and value >= SIZES["vocab_size"]:
            given[name] = 1
        elif "dropout" in name and isinstance(value, float):
            given[name] = 0.0
        elif name in SIZES and value is not None and name in fields:
            rule = SIZES[name]
            given[name] = rule(value) if callable(rule) else rule
    return type(config)(**{k: v for k, v in given.items() if v is not None})


class Outputs(nn.Module):
    """Calls a model by keyword and returns the tensors of its output."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args):
        out = self.model(**dict(zip(self.names, args)))
        fields = [out] if isinstance(out, torch.Tensor) else out if isinstance(out, (tuple, list)) else out.values()
        return [t for t in fields if isinstance(t, torch.Tensor)]


def guesses(model, config):
    """Sets of inputs that might be what `model` wants, likely ones first."""
    known = inspect.signature(model.forward).parameters
    text = config.get_text_config()
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", 32)
    sizes = list(size) if isinstance(size, (list, tuple)) else [size, size] if isinstance(size, int) else [32, 32]
    channels = getattr(vision, "num_channels", 3)
    ids = torch.randint(3, getattr(text, "vocab_size", None) or 128, (2, LENGTH))
    mask = torch.ones_like(ids)
    mask[1, -5:] = 0
    wanted = [n for n, p in known.items() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    main = getattr(model, "main_input_name", "input_ids")
    words = {"input_ids": ids, "attention_mask": mask}
    decoder = {"decoder_input_ids": ids[:, :7]} if "decoder_input_ids" in known else {}
    heads = [words] if "input_ids" in known and main == "input_ids" else []
    if "input_ids" in known and "pixel_values" in known:
        heads.append(words | {"pixel_values": torch.randn(2, channels, *sizes)})
    if "pixel_values" in known:
        heads += [{"pixel_values": torch.randn(2, channels, *s)} for s in (sizes, (64, 64), (96, 96))]
        heads.append({"pixel_values": torch.randn(2, getattr(config, "num_frames", 2), channels, *sizes)})
    if "input_values" in known:
        bins = getattr(config, "num_mel_bins", 80)
        heads += [{"input_values": torch.randn(2, *s)} for s in ((2000,), (1, 2000), (getattr(config, "max_length", 64), bins), (64, bins))]
    if "input_features" in known:
        bins = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", 80)
        heads += [{"input_features": torch.randn(2, *s)} for s in ((bins, 64), (64, bins), (64, 160), (128, 64))]
    if "past_values" in known:
        past = torch.randn(2, 32, getattr(config, "num_input_channels", 1))
        heads.append({"past_values": past})
    for head in heads:
        for extra in (decoder, {}):
            found = {n: t for n, t in (head | extra).items() if n in known or any(p.kind == p.VAR_KEYWORD for p in known.values())}
            if all(n in found for n in wanted):
                yield found
                yield {n: t for n, t in found.items() if n != "attention_mask"}


def build(name, limit=20_000_000):
    """A model and arguments with which eager runs. ValueError: not guessed."""
    from transformers import AutoModel
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    torch.manual_seed(1234)
    config = shrink(CONFIG_MAPPING[name]())
    config.return_dict = True
    with torch.device("meta"):
        count = sum(p.numel() for p in AutoModel.from_config(config).parameters())
    if count > limit:
        raise ValueError(f"{count / 1e6:.0f} million parameters")
    model = AutoModel.from_config(config, attn_implementation=os.environ.get("HUNT_ATTENTION")).eval()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for name, parameter in model.named_parameters():  # as in tests/models/architectures.py
        parameter.requires_grad_(not name.endswith(("key.bias", "k_proj.bias")))
    tried = []
    for inputs in guesses(model, config):
        try:
            torch.manual_seed(0)
            with torch.no_grad():
                outputs = Outputs(model, list(inputs))(*inputs.values())
            if outputs:
                return Outputs(model, list(inputs)), tuple(inputs.values())
        except Exception as error:
            tried.append(f"{list(inputs)}: {type(error).__name__}: {str(error)[:120]}")
    raise ValueError("no inputs guessed; " + " || ".join(tried))


def cast(model, args, dtype):
    return model.to(dtype), tuple(a.to(dtype) if a.is_floating_point() else a for a in args)


def judge(name, options):
    from models import judging, zoo

    if options.zoo:
        case = zoo.CASES[name]
    else:
        try:
            model, args = build(name)
        except Exception as error:
            return {"skip": f"{type(error).__name__}: {str(error)[:600]}"}
        if options.build:
            return {"ok": True, "parameters": sum(p.numel() for p in model.parameters())}
        model, args = cast(model, args, torch.bfloat16 if options.bf16 else torch.float32)
        case = zoo.Case(name, "other", lambda: (model, args))
    import torch_tenon

    found = {"problems": [], "steps": {}}
    for train in (False, True):
        what = "training" if train else "inference"
        try:
            verdict = judging.judge(case, "tenon", torch_tenon, train)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            found["problems"].append(f"{what}: {type(error).__name__}: {str(error)[:500]} ({last.filename}:{last.lineno})")
            continue
        worst = verdict.report.worst
        found[what] = round(worst.used, 2) if worst else None
        found["problems"] += [f"{what}: {p}" for p in verdict.problems[:6]]
        found.setdefault("ops", {}).update({op: True for g in verdict.graphs for op in g["nodes"]})
        for op, step in judging.foreign_steps(verdict.graphs).items():
            found["steps"][op] = step["reason"][:160]
    found["ok"] = not found["problems"]
    return found


def child(name, options, out):
    began = time.time()
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 1)
        if not options.loud:
            os.dup2(null.fileno(), 2)
    try:
        found = judge(name, options)
    except Exception as error:
        found = {"problems": [f"the runner: {type(error).__name__}: {str(error)[:300]}"]}
    with open(out, "a") as file:
        file.write(json.dumps({"name": name, **found, "seconds": round(time.time() - began, 1)}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    for flag in ("--zoo", "--build", "--bf16", "--loud"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--out", default="/tmp/hunt_models.jsonl")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch._dynamo.backends.common  # noqa: F401  (once, before the forks)
    import torch._functorch.aot_autograd  # noqa: F401
    import transformers
    from models import zoo
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    transformers.logging.set_verbosity_error()
    names = options.names or list(zoo.CASES if options.zoo else MODEL_MAPPING_NAMES)
    running = {}
    while names or running:
        while names and len(running) < options.jobs:
            name = names.pop(0)
            pid = os.fork()
            if pid == 0:
                child(name, options, options.out)
                os._exit(0)
            running[pid] = (name, time.time() + options.seconds)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            name, _ = running.pop(pid)
            if status:
                with open(options.out, "a") as file:
                    file.write(json.dumps({"name": name, "problems": [f"ended by signal {os.WTERMSIG(status)}"]}) + "\n")
        for pid, (_, end) in running.items():
            if time.time() > end:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
