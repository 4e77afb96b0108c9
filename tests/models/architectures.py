"""More of transformers' architectures, from small configs with random weights: attention of other kinds, images, sound."""

import torch

from models.cases import Pick, case, ids

# Weights wide enough that attention and gates of these widths aren't uniform; no dropout, since training steps are compared.
_TEXT = dict(
    vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=64,
    initializer_range=0.15, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
_DECODER = dict(
    vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    intermediate_size=48, max_position_embeddings=64, initializer_range=0.15, use_cache=False,
)  # fmt: skip
_TRANSLATOR = dict(
    vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, dropout=0.0,
    attention_dropout=0.0, activation_dropout=0.0, init_std=0.15, use_cache=False, pad_token_id=0,
)  # fmt: skip


def _model(kind, **fields):
    from transformers import AutoConfig, AutoModel

    model = AutoModel.from_config(AutoConfig.for_model(kind, **fields))
    for name, parameter in model.named_parameters():
        # A softmax doesn't see what all keys share: the gradient is zero but for rounding, and says nothing.
        parameter.requires_grad_(not name.endswith(("key.bias", "k_proj.bias")))
    return model


def _padded(length=16, kept=11):
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, kept:] = 0
    return ids(94, 2, length) + 2, mask


def _text(kind, length=16, kept=11, **fields):
    return Pick(_model(kind, **(_TEXT | fields)), ("input_ids", "attention_mask"), "last_hidden_state"), _padded(length, kept)


def _decoder(kind, **fields):
    return Pick(_model(kind, **fields), ("input_ids",), "last_hidden_state", use_cache=False), (ids(96, 2, 12),)


@case("albert", "transformer", trains=True)
def _albert():
    """One layer's weights used by all."""
    return _text("albert", embedding_size=16, num_hidden_groups=1)


@case("deberta_v2", "other", trains=True)
def _deberta_v2():
    """Content to place and place to content, gathered by distances."""
    how = dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, max_relative_positions=16)
    return _text("deberta-v2", **how, position_biased_input=False, norm_rel_ebd="layer_norm", share_att_key=True)


@case("longformer", "other", trains=True)
def _longformer():
    """Sliding windows by as_strided chunks."""
    return _text("longformer", attention_window=[4, 8], pad_token_id=1, max_position_embeddings=66)


@case("xlnet", "other", trains=True)
def _xlnet():
    fields = dict(vocab_size=96, d_model=32, n_layer=2, n_head=4, d_inner=48, initializer_range=0.15, dropout=0.0)
    return Pick(_model("xlnet", **fields), ("input_ids", "attention_mask"), "last_hidden_state", use_mems=False), _padded()


@case("fnet", "other", trains=True)
def _fnet():
    fields = {name: value for name, value in _TEXT.items() if name not in ("num_attention_heads", "attention_probs_dropout_prob")}
    return Pick(_model("fnet", **fields), ("input_ids",), "last_hidden_state"), (ids(96, 2, 16),)


@case("bart", "transformer", trains=True)
def _bart():
    model = _model("bart", **_TRANSLATOR, max_position_embeddings=64)
    picked = Pick(model, ("input_ids", "attention_mask", "decoder_input_ids"), "last_hidden_state", use_cache=False)
    return picked, (*_padded(), ids(96, 2, 7))


@case("bloom", "transformer", trains=True)
def _bloom():
    """Distances as biases (ALiBi)."""
    fields = dict(vocab_size=96, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.15, hidden_dropout=0.0, attention_dropout=0.0)
    return Pick(_model("bloom", **fields), ("input_ids", "attention_mask"), "last_hidden_state", use_cache=False), _padded()


@case("gptj", "transformer", trains=True)
def _gptj():
    """Rotations of neighbours, attention and MLP side by side."""
    fields = dict(vocab_size=96, n_positions=64, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, initializer_range=0.15)
    return _decoder("gptj", **fields, bos_token_id=1, eos_token_id=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


@case("gemma2", "transformer", trains=True)
def _gemma2():
    """Capped logits, windows in every second layer."""
    return _decoder("gemma2", **_DECODER, sliding_window=4, query_pre_attn_scalar=8)


@case("mixtral", "other", trains=True)
def _mixtral():
    return _decoder("mixtral", **_DECODER, num_local_experts=4, num_experts_per_tok=2)


@case("mamba", "other", trains=True)
def _mamba():
    fields = dict(vocab_size=96, hidden_size=24, state_size=4, num_hidden_layers=1, conv_kernel=3, time_step_rank=4)
    model = _model("mamba", **fields, initializer_range=0.15, use_cache=False)
    return Pick(model, ("input_ids",), "last_hidden_state", use_cache=False), (ids(96, 2, 7),)


@case("perceiver", "other", trains=True)
def _perceiver():
    fields = dict(num_latents=6, d_latents=32, d_model=24, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=4)
    model = _model("perceiver", **fields, num_cross_attention_heads=4, attention_probs_dropout_prob=0.0, initializer_range=0.15)
    return Pick(model, ("inputs",), "last_hidden_state"), (torch.randn(2, 20, 24),)


class _Similarity(Pick):
    def forward(self, *args):
        out = self.model(**dict(zip(self.inputs, args)))
        return out.logits_per_image, out.text_embeds


@case("clip", "transformer", trains=True)
def _clip():
    both = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, initializer_range=0.15)
    text = both | dict(vocab_size=96, max_position_embeddings=32, bos_token_id=1, eos_token_id=2)
    model = _model("clip", text_config=text, vision_config=both | dict(image_size=24, patch_size=8), projection_dim=16)
    words, mask = _padded()
    return _Similarity(model, ("input_ids", "attention_mask", "pixel_values"), ""), (words, mask, torch.randn(3, 3, 24, 24))


@case("swin", "transformer", trains=True)
def _swin():
    """Windows, rolled in every second layer; patches merged."""
    fields = dict(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, initializer_range=0.15)
    return Pick(_model("swin", **fields, drop_path_rate=0.0), ("pixel_values",), "last_hidden_state"), (torch.randn(2, 3, 32, 32),)


@case("segformer", "transformer", trains=True)
def _segformer():
    fields = dict(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[4, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2])
    heads = dict(num_attention_heads=[1, 2], mlp_ratios=[2, 2], initializer_range=0.15, drop_path_rate=0.0)
    zeros = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return Pick(_model("segformer", **fields, **heads, **zeros), ("pixel_values",), "last_hidden_state"), (torch.randn(2, 3, 32, 32),)


@case("wav2vec2", "other", trains=True)
def _wav2vec2():
    """Strided convolutions of the sound; places by a grouped convolution with a weight norm."""
    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, initializer_range=0.15, layerdrop=0.0)
    convs = dict(conv_dim=[16, 16, 16], conv_kernel=[10, 3, 2], conv_stride=[5, 2, 2])
    places = dict(num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, mask_time_prob=0.0)
    zeros = dict(hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, feat_proj_dropout=0.0, final_dropout=0.0)
    return Pick(_model("wav2vec2", **small, **convs, **places, **zeros), ("input_values",), "last_hidden_state"), (torch.randn(2, 400),)


@case("whisper", "transformer", trains=True)
def _whisper():
    lengths = dict(num_mel_bins=12, max_source_positions=16, max_target_positions=16)
    model = _model("whisper", **_TRANSLATOR, **lengths, decoder_start_token_id=1, eos_token_id=2, bos_token_id=1)
    picked = Pick(model, ("input_features", "decoder_input_ids"), "last_hidden_state", use_cache=False)
    return picked, (torch.randn(2, 12, 32), ids(96, 2, 6))
