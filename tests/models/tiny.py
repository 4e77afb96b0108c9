"""Tiny random models of the architectures that `transformers` has a config of, and inputs they take, both guessed by names of fields.

`tools/dev/hunt_models.py` judges them. About 370 of 620 architectures can be guessed (transformers 5.24); the others raise.
"""

import inspect
import os

import torch
from torch import nn

# What a field of a config becomes, by its name; functions take the default.
WIDTH, HEADS, LENGTH = 64, 4, 16
ROWS = [
    (128, "vocab_size"),
    (WIDTH, "hidden_size d_model n_embd embedding_size word_embed_proj_dim decoder_hidden_size encoder_hidden_size lru_width "
      "hidden_dim emb_dim out_hidden_size encoder_hidden_dim decoder_hidden_dim decoder_embed_dim dim d_latents "
      "compressor_hidden_size"),
    (96, "intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff ffn_dim mlp_dim n_inner d_inner decoder_intermediate_size ff_size"),
    (48, "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size shared_intermediate_size"),
    (2, "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers depth num_decoder_layers num_encoder_layers "
      "num_key_value_heads index_n_heads linear_num_key_heads num_experts_per_tok num_frames emb_layers"),
    (1, "encoder_num_hidden_layers decoder_num_hidden_layers n_group topk_group first_k_dense_replace num_random_blocks "
      "feature_size"),
    (HEADS, "num_attention_heads n_head n_heads encoder_attention_heads decoder_attention_heads decoder_num_attention_heads"),
    (16, "head_dim d_head d_kv kv_lora_rank qk_nope_head_dim v_head_dim index_head_dim linear_key_head_dim linear_value_head_dim "
      "mamba_d_state mamba_d_head mamba_head_dim ssm_state_size state_size num_conv_pos_embeddings codevector_dim "
      "proj_codevector_dim latent_dim context_length"),
    (8, "qk_rope_head_dim index_topk mamba_n_heads mamba_num_heads time_step_rank mamba_dt_rank attention_window_size chunk_size "
      "mamba_chunk_size rotary_dim num_queries local_attention num_codevectors_per_group num_buckets rank num_filters "
      "num_latents xpath_unit_hidden_size"),
    (24, "qk_head_dim embed_dim"),
    (4, "linear_num_value_heads num_experts n_routed_experts num_local_experts moe_num_experts num_conv_pos_embedding_groups "
      "attention_window block_size prediction_length"),
    (256, "n_positions n_ctx"),
    (32, "projection_dim max_source_positions fpn_hidden_size codebook_size"),
    (0.0, "layerdrop encoder_layerdrop decoder_layerdrop drop_path_rate mask_time_prob"),
    (0.1, "initializer_range init_std"),
    (False, "use_cache apply_spec_augment"),
    (lambda v: HEADS if isinstance(v, int) else v, "num_heads"),
    (lambda v: v and 24, "q_lora_rank"),
    (lambda v: min(v, 256), "max_position_embeddings"),
    (lambda v: 32 if isinstance(v, int) else [32, 32], "image_size"),
    (lambda v: min(v, 8) if isinstance(v, int) else [min(x, 8) for x in v], "patch_size"),
    (lambda v: [32] * len(v), "conv_dim tdnn_dim"),
    (lambda v: [1] * len(v), "depths"),
    (lambda v: [max(x // 4, 8) for x in v], "hidden_sizes encoder_channels neck_hidden_sizes"),
    (lambda v: v and 8, "sliding_window"),
    (lambda v: v and 0.5, "layer_scale_init_value"),
    (lambda v: min(v, 2), "num_register_tokens"),
    (lambda v: [x if x == 3 else 16 for x in v] if not isinstance(v, int) else 16, "stem_channels"),
    ([1, 1], "block_sizes"),
    ([1], "hybrid_layer_ids"),
]  # fmt: skip
SIZES = {name: rule for rule, names in ROWS for name in names.split()}


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
