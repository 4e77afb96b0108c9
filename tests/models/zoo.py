"""The models that tests, demo and benchmarks share: name -> model and example inputs.

Every case is built from a fixed seed, with weights sane enough that outputs don't vanish, and
at a size that two cores run in seconds. `transformers` models come from configurations with
random weights; nothing is downloaded.
"""

import torch

from models import nets, small_cnns
from models.cases import CASES, Case, Pick, case, class_loss, ids, next_token_loss  # noqa: F401

# --- hand-written ---------------------------------------------------------------------------


@case("transformer4l", "transformer", quick=True)
def _transformer4l():
    return nets.Encoder(), (torch.randn(1, 128, 768),)


def gpt_small(batch=4, length=64):
    return nets.GPT(length=length), (ids(8192, batch, length),)


@case("gpt_small", "transformer", loss=next_token_loss)
def _gpt_small():
    return gpt_small()


@case("gpt_tiny", "transformer", quick=True, loss=next_token_loss)
def _gpt_tiny():
    return nets.GPT(vocab=512, layers=2, dim=64, heads=4, length=32), (ids(512, 2, 32),)


def resnet18(batch=1, size=224):
    x = torch.randn(batch, 3, size, size)
    return nets.calibrate(nets.ResNet(), torch.randn(4, 3, 64, 64)), (x,)


def resnet50(batch=1, size=224):
    model = nets.ResNet((3, 4, 6, 3), expansion=4)
    x = torch.randn(batch, 3, size, size)
    return nets.calibrate(model, torch.randn(4, 3, 64, 64)), (x,)


@case("resnet18", "cnn", loss=class_loss)
def _resnet18():
    return resnet18(batch=2, size=96)


@case("resnet_tiny", "cnn", quick=True, loss=class_loss)
def _resnet_tiny():
    model = nets.ResNet((1, 1, 1), width=16, classes=10)
    x = torch.randn(4, 3, 48, 48)
    return nets.calibrate(model, x), (x,)


@case("resnet50", "cnn")
def _resnet50():
    return resnet50(size=128)


def mobilenetv3(batch=1, size=224):
    x = torch.randn(batch, 3, size, size)
    return nets.calibrate(nets.MobileNetV3(), torch.randn(8, 3, 96, 96)), (x,)


@case("mobilenetv3", "cnn", quick=True)
def _mobilenetv3():
    return mobilenetv3(size=96)


# Batch norm over few values: one image of 64x64, 2x2 places in the end.
@case("shufflenet_v2", "cnn", loss=class_loss)
def _shufflenet():
    return _one_small_image(small_cnns.ShuffleNetV2())


@case("googlenet", "cnn", loss=class_loss)
def _googlenet():
    return _one_small_image(small_cnns.GoogLeNet())


@case("mnasnet", "cnn", loss=class_loss)
def _mnasnet():
    return _one_small_image(small_cnns.mnasnet_half())


@case("mobilenet_v2", "cnn", loss=class_loss)
def _mobilenet_v2():
    return _one_small_image(small_cnns.mobilenet_v2())


def _one_small_image(model):
    return nets.calibrate(model, torch.randn(8, 3, 64, 64)), (torch.randn(1, 3, 64, 64),)


@case("unet", "cnn")
def _unet():
    return nets.UNet(), (torch.randn(2, 3, 32, 32), torch.tensor([7, 430]))


def dlrm(batch=64):
    return nets.DLRM(), (torch.randn(batch, 13), ids(10000, 8, batch, 4))


@case("dlrm", "other")
def _dlrm():
    return dlrm()


@case("lstm_cells", "other", quick=True)
def _lstm_cells():
    return nets.HandLSTM(), (torch.randn(8, 16, 64),)


# --- transformers, from config --------------------------------------------------------------


# 0.02, the usual range, leaves attention scores near 0 and softmax uniform: too easy a case.
_RANGE = 0.05


@case("bert_base", "transformer")
def _bert_base():
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(initializer_range=_RANGE))
    mask = torch.ones(2, 64, dtype=torch.long)
    mask[1, 48:] = 0
    picked = Pick(model, ("input_ids", "attention_mask"), "last_hidden_state")
    return picked, (ids(30522, 2, 64), mask)


@case("gpt2_small", "transformer")
def _gpt2_small():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(initializer_range=_RANGE))
    return Pick(model, ("input_ids",), "logits", use_cache=False), (ids(50257, 1, 64),)


@case("llama", "transformer")
def _llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=4096, hidden_size=512, intermediate_size=1376, num_hidden_layers=6,
        num_attention_heads=8, num_key_value_heads=4, initializer_range=_RANGE,
    )  # fmt: skip
    picked = Pick(LlamaForCausalLM(config), ("input_ids",), "logits", use_cache=False)
    return picked, (ids(4096, 1, 64),)


@case("t5_small", "transformer")
def _t5_small():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0
    )
    picked = Pick(
        T5ForConditionalGeneration(config), ("input_ids", "decoder_input_ids"), "logits",
        use_cache=False,
    )  # fmt: skip
    return picked, (ids(32128, 1, 48), ids(32128, 1, 24))


@case("vit_base", "transformer")
def _vit_base():
    from transformers import ViTConfig, ViTModel

    model = ViTModel(ViTConfig(initializer_range=_RANGE))
    return Pick(model, ("pixel_values",), "last_hidden_state"), (torch.randn(1, 3, 224, 224),)


@case("convnext_tiny", "cnn")
def _convnext_tiny():
    from transformers import ConvNextConfig, ConvNextModel

    # The default layer scale, 1e-6, would switch every block off.
    model = ConvNextModel(ConvNextConfig(layer_scale_init_value=0.5, initializer_range=_RANGE))
    return Pick(model, ("pixel_values",), "last_hidden_state"), (torch.randn(1, 3, 128, 128),)


@case("hf_resnet50", "cnn")
def _hf_resnet50():
    from transformers import ResNetConfig, ResNetModel

    model = nets.calibrate(ResNetModel(ResNetConfig()), torch.randn(4, 3, 64, 64))
    return Pick(model, ("pixel_values",), "pooler_output"), (torch.randn(1, 3, 128, 128),)


# The other families, one module each: they register their cases.
from models import architectures, sequences, various, vision  # noqa: E402, F401
