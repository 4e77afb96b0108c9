"""Rows beyond rows.py: some 480 small programs of many families, forward or forward and backward, each timed beside eager.

    python benchmarks/beyond.py [parts of names] [--markdown build/beyond.md] [--cpu]

One process, two threads; eager and tenon take turns in blocks of some milliseconds, who begins changes. Shown per row: the median of the
blocks' ratios and that of the best blocks; `--cpu`: one thread, and its CPU time, which other programs change less. Results are judged by
the tests (tests/plugin). rows.py has some of these rows for run.py.
"""

import argparse
import json
import statistics
import sys
import time
from typing import Callable, NamedTuple

import environment
import torch
import torch.nn.functional as F
from torch import nn

environment.find_packages()


class Row(NamedTuple):
    make: Callable[[], tuple[Callable, tuple]]  # what runs, and its arguments
    grad: bool  # gradients of all that is floating are computed, too


ROWS: dict[str, Row] = {}
rn, bf, CL = torch.randn, torch.bfloat16, torch.channels_last


def fn(name, function, *args, grad=False):
    """A row of a function; arguments are made by calling what makes them."""
    ROWS[name] = Row(lambda: (function, tuple(a() if callable(a) else a for a in args)), grad)


def T(*sizes, dt=torch.float32, cl=False):
    """Normal numbers."""

    def make():
        t = rn(*sizes).to(dt)
        return t.to(memory_format=CL if len(sizes) == 4 else torch.channels_last_3d) if cl else t

    return make


def U8(*sizes, cl=False):
    def make():
        t = torch.randint(0, 256, sizes, dtype=torch.uint8)
        return t.to(memory_format=CL) if cl else t

    return make


def I(high, *sizes, dt=torch.int64):  # noqa: E743
    return lambda: torch.randint(0, high, sizes, dtype=dt)


# --- resampling
for mode in ("bilinear", "bicubic"):
    for ac in (False, True):
        fn(
            f"interp_{mode}_up_ac{int(ac)}",
            lambda x, mode=mode, ac=ac: F.interpolate(x, size=(131, 97), mode=mode, align_corners=ac),
            T(2, 8, 64, 48),
        )
    fn(f"interp_{mode}_down", lambda x, mode=mode: F.interpolate(x, size=(37, 41), mode=mode, align_corners=False), T(4, 16, 128, 96))
    fn(
        f"interp_{mode}_cl",
        lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode, align_corners=False),
        T(2, 32, 48, 48, cl=True),
    )
    fn(
        f"interp_{mode}_aa_down",
        lambda x, mode=mode: F.interpolate(x, size=(64, 64), mode=mode, align_corners=False, antialias=True),
        T(2, 3, 224, 224),
    )
    fn(
        f"interp_{mode}_bf16",
        lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode, align_corners=False),
        T(2, 16, 56, 56, dt=bf),
    )
fn("interp_bilinear_u8", lambda x: F.interpolate(x, size=(224, 224), mode="bilinear", align_corners=False), U8(4, 3, 320, 240))
fn("interp_bilinear_u8_cl", lambda x: F.interpolate(x, size=(224, 224), mode="bilinear", align_corners=False), U8(4, 3, 320, 240, cl=True))
fn(
    "interp_bilinear_aa_u8",
    lambda x: F.interpolate(x, size=(224, 224), mode="bilinear", align_corners=False, antialias=True),
    U8(4, 3, 320, 240),
)
fn("interp_nearest_up", lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), T(4, 16, 64, 64))
fn("interp_nearest_cl", lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), T(4, 64, 28, 28, cl=True))
fn("interp_nearest_odd", lambda x: F.interpolate(x, size=(101, 67), mode="nearest"), T(4, 16, 64, 64))
fn("interp_nearest_exact_down", lambda x: F.interpolate(x, size=(33, 29), mode="nearest-exact"), T(8, 32, 64, 64))
fn("interp_area_down", lambda x: F.interpolate(x, size=(16, 16), mode="area"), T(4, 16, 64, 64))
fn("interp_area_uneven", lambda x: F.interpolate(x, size=(30, 23), mode="area"), T(4, 16, 64, 64))
fn("interp_linear1d", lambda x: F.interpolate(x, scale_factor=2, mode="linear", align_corners=False), T(8, 64, 512))
fn("interp_trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear", align_corners=False), T(1, 8, 16, 24, 24))
fn("interp_nearest_bf16", lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), T(4, 32, 64, 64, dt=bf))
# --- pooling
fn("adapt_avg_7", lambda x: F.adaptive_avg_pool2d(x, 7), T(8, 128, 28, 28))
fn("adapt_avg_uneven", lambda x: F.adaptive_avg_pool2d(x, (7, 5)), T(8, 64, 24, 17))
fn("adapt_avg_1", lambda x: F.adaptive_avg_pool2d(x, 1), T(8, 512, 7, 7))
fn("adapt_avg_1_28", lambda x: F.adaptive_avg_pool2d(x, 1), T(8, 128, 28, 28))
fn("adapt_avg_1_56", lambda x: F.adaptive_avg_pool2d(x, 1), T(8, 64, 56, 56))
fn("adapt_avg_cl", lambda x: F.adaptive_avg_pool2d(x, 1), T(8, 512, 7, 7, cl=True))
fn("adapt_avg_uneven_cl", lambda x: F.adaptive_avg_pool2d(x, (6, 6)), T(4, 256, 13, 13, cl=True))
fn("adapt_max_7", lambda x: F.adaptive_max_pool2d(x, 7), T(8, 128, 28, 28))
fn("adapt_max_uneven", lambda x: F.adaptive_max_pool2d(x, (7, 5)), T(8, 64, 24, 17))
fn("adapt_max_uneven_idx", lambda x: F.adaptive_max_pool2d(x, (7, 5), return_indices=True), T(8, 64, 24, 17))
fn("adapt_max_1d", lambda x: F.adaptive_max_pool1d(x, 16), T(16, 128, 100))
fn("adapt_avg_3d", lambda x: F.adaptive_avg_pool3d(x, (4, 4, 4)), T(2, 16, 12, 18, 18))
fn("spp", lambda x: torch.cat([F.adaptive_max_pool2d(x, s).flatten(1) for s in (1, 2, 3, 6)], 1), T(2, 256, 13, 13))
fn("max_3s2", lambda x: F.max_pool2d(x, 3, 2, 1), T(4, 64, 112, 112))
fn("max_3s2_cl", lambda x: F.max_pool2d(x, 3, 2, 1), T(4, 64, 56, 56, cl=True))
fn("max_2", lambda x: F.max_pool2d(x, 2), T(8, 64, 56, 56))
fn("max_2_idx", lambda x: F.max_pool2d(x, 2, return_indices=True), T(8, 64, 32, 32))
fn("max_3s1_dil", lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2), T(4, 64, 28, 28))
fn("max_ceil", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), T(8, 64, 27, 27))
fn("max_5s1", lambda x: F.max_pool2d(x, 5, 1, 2), T(4, 128, 20, 20))
fn("max_13s1_spp", lambda x: F.max_pool2d(x, 13, 1, 6), T(1, 128, 20, 20))
fn("max_bf16", lambda x: F.max_pool2d(x, 3, 2, 1), T(4, 64, 56, 56, dt=bf))
fn("max1d", lambda x: F.max_pool1d(x, 4, 4), T(32, 64, 256))
fn("max1d_3s1", lambda x: F.max_pool1d(x, 3, 1, 1), T(16, 64, 257))
fn("max3d", lambda x: F.max_pool3d(x, 2), T(2, 16, 16, 28, 28))
fn("max3d_3s2", lambda x: F.max_pool3d(x, 3, 2, 1), T(2, 16, 16, 28, 28))
fn("avg_2", lambda x: F.avg_pool2d(x, 2), T(8, 64, 56, 56))
fn("avg_3s1", lambda x: F.avg_pool2d(x, 3, 1, 1), T(4, 64, 35, 35))
fn("avg_3s1_nopad", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, ceil_mode=True), T(8, 64, 28, 28))
fn("avg_cl", lambda x: F.avg_pool2d(x, 3, 2, 1), T(4, 64, 56, 56, cl=True))
fn("avg_bf16", lambda x: F.avg_pool2d(x, 2), T(8, 64, 56, 56, dt=bf))
fn("avg_7", lambda x: F.avg_pool2d(x, 7), T(8, 512, 7, 7))
fn("avg1d", lambda x: F.avg_pool1d(x, 25, 1, 12), T(16, 32, 336))
fn("avg3d", lambda x: F.avg_pool3d(x, 2), T(2, 16, 16, 28, 28))
fn("lp_2", lambda x: F.lp_pool2d(x, 2.0, 3, 2), T(8, 32, 32, 32))
fn("max_unpool", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), T(4, 32, 32, 32))
# --- reductions
fn("mean_7x7", lambda x: x.mean((2, 3)), T(16, 512, 7, 7))
fn("mean_28x28", lambda x: x.mean((2, 3)), T(8, 128, 28, 28))
fn("mean_56x56", lambda x: x.mean((2, 3)), T(8, 64, 56, 56))
fn("mean_28x28_cl", lambda x: x.mean((2, 3)), T(8, 128, 28, 28, cl=True))
fn("var_mid", lambda x: x.var(1), T(16, 128, 96))
fn("std_all", lambda x: x.std(), T(512, 513))
fn("mean_batch", lambda x: x.mean(0), T(64, 3, 32, 33))
fn("sum_020", lambda x: x.sum((0, 2)), T(32, 64, 197))
fn("amax_last_odd", lambda x: x.amax(-1), T(4096, 31))
fn("amax_last_small", lambda x: x.amax(-1), T(30000, 7))
fn("amax_first", lambda x: x.amax(0), T(1000, 301))
fn("argmax_last", lambda x: x.argmax(-1), T(128, 5003))
fn("argmax_first", lambda x: x.argmax(0), T(500, 700))
fn("argmax_mid", lambda x: x.argmax(1), T(8, 21, 100, 100))
fn("argmin_all", lambda x: x.argmin(), T(300000))
fn("max_dim", lambda x: x.max(1), T(512, 1000))
fn("sum_strided", lambda x: x.t().sum(1), T(1000, 700))
fn("sum_slice", lambda x: x[:, ::3].sum(1), T(1000, 900))
fn("sum_i64", lambda x: x.sum(-1), I(100, 512, 1000))
fn("sum_bool", lambda x: (x > 0).sum(-1), T(512, 1000))
fn("any_last", lambda x: (x > 3).any(-1), T(512, 1000))
fn("sum_bf16", lambda x: x.sum(-1), T(512, 1000, dt=bf))
fn("mean_bf16_first", lambda x: x.mean(0), T(512, 1000, dt=bf))
fn("prod_last", lambda x: x.prod(-1), T(2000, 33))
fn("norm_last", lambda x: x.norm(dim=-1), T(2000, 129))
fn("norm_p3", lambda x: x.norm(p=3, dim=-1), T(1000, 129))
fn("normalize", lambda x: F.normalize(x, dim=1), T(64, 256, 49))
fn("logsumexp_mid", lambda x: torch.logsumexp(x, 1), T(64, 100, 50))
fn("var_mean_cl", lambda x: torch.var_mean(x, (1, 2, 3)), T(8, 64, 30, 30, cl=True))
fn("sum_f64", lambda x: x.sum(-1), T(512, 1000, dt=torch.float64))
fn("aminmax", lambda x: torch.aminmax(x, dim=-1), T(1000, 513))
fn("count_nonzero", lambda x: torch.count_nonzero(x, dim=1), I(2, 512, 1000))
fn("std_small_rows", lambda x: x.std(-1), T(20000, 12))
# --- norms
for tag, s, g in (("odd", (4, 45, 29, 31), 9), ("big", (8, 64, 32, 32), 32), ("sd", (1, 320, 32, 32), 32)):
    fn(f"gn_{tag}", lambda x, w, b, g=g: F.group_norm(x, g, w, b), T(*s), T(s[1]), T(s[1]))
fn("gn_cl", lambda x, w, b: F.group_norm(x, 8, w, b), T(4, 64, 28, 28, cl=True), T(64), T(64))
fn("gn_bf16", lambda x, w, b: F.group_norm(x, 8, w, b), T(4, 64, 28, 28, dt=bf), T(64, dt=bf), T(64, dt=bf))
fn("gn_silu_train", lambda x, w, b: F.silu(F.group_norm(x, 8, w, b)), T(4, 64, 28, 28), T(64), T(64), grad=True)
fn("in_2d", lambda x: F.instance_norm(x), T(4, 32, 64, 64))
fn("in_2d_affine", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), T(2, 64, 37, 41), T(64), T(64))
fn("ln_odd", lambda x, w, b: F.layer_norm(x, (773,), w, b), T(511, 773), T(773), T(773))
fn("ln_small", lambda x, w, b: F.layer_norm(x, (32,), w, b), T(20000, 32), T(32), T(32))
fn("ln_bf16", lambda x, w, b: F.layer_norm(x, (768,), w, b), T(512, 768, dt=bf), T(768, dt=bf), T(768, dt=bf))
fn("ln_train", lambda x, w, b: F.layer_norm(x, (768,), w, b), T(512, 768), T(768), T(768), grad=True)
fn("ln_2d", lambda x: F.layer_norm(x, (64, 33, 33)), T(4, 64, 33, 33))
fn("ln_cl2d", lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (96,), w, b).permute(0, 3, 1, 2), T(4, 96, 28, 28), T(96), T(96))
fn("rms", lambda x, w: F.rms_norm(x, (1024,), w), T(256, 1024), T(1024))
fn("rms_bf16", lambda x, w: F.rms_norm(x, (1024,), w), T(256, 1024, dt=bf), T(1024, dt=bf))


def bn(train, cl=False, dt=torch.float32, s=(8, 61, 29, 29)):
    def make():
        m = nn.BatchNorm2d(s[1]).to(dt)
        m.train(train)
        x = rn(*s).to(dt)
        if cl:
            x = x.to(memory_format=CL)
        return m, (x,)

    return make


ROWS["bn_eval"] = Row(bn(False), False)
ROWS["bn_train_fwd"] = Row(bn(True), False)
ROWS["bn_train"] = Row(bn(True), True)
ROWS["bn_eval_cl"] = Row(bn(False, True, s=(8, 64, 28, 28)), False)
ROWS["bn_train_cl"] = Row(bn(True, True, s=(8, 64, 28, 28)), True)
ROWS["bn_eval_bf16"] = Row(bn(False, False, bf), False)
ROWS["bn_train_bf16"] = Row(bn(True, False, bf), True)


def mk(m, *args, train=False):
    def make():
        mod = m().train(train)
        return mod, tuple(a() if callable(a) else a for a in args)

    return make


ROWS["bn1d_train"] = Row(mk(lambda: nn.BatchNorm1d(130), T(512, 130), train=True), True)
# --- softmax etc
fn("softmax_vocab", lambda x: F.softmax(x, -1), T(16, 50257))
fn("log_softmax_vocab", lambda x: F.log_softmax(x, -1), T(16, 50257))
fn("softmax_dim1", lambda x: F.softmax(x, 1), T(8, 21, 100, 100))
fn("softmax_dim0", lambda x: F.softmax(x, 0), T(200, 1000))
fn("softmax_small", lambda x: F.softmax(x, -1), T(40000, 9))
fn("softmax_bf16", lambda x: F.softmax(x, -1), T(96, 128, 128, dt=bf))
fn("softmax_f16", lambda x: F.softmax(x.float(), -1).half(), T(96, 128, 128, dt=torch.float16))
fn("softmax_masked", lambda x, m: F.softmax(x.masked_fill(m, float("-inf")), -1), T(24, 128, 131), lambda: torch.rand(128, 131) > 0.6)
fn("ce_vocab", lambda x, t: F.cross_entropy(x, t), T(64, 32000), I(32000, 64))
fn("ce_vocab_train", lambda x, t: F.cross_entropy(x, t), T(64, 32000), I(32000, 64), grad=True)
fn("ce_smooth", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), T(256, 1000), I(1000, 256))
fn("ce_seg", lambda x, t: F.cross_entropy(x, t), T(4, 21, 64, 64), I(21, 4, 64, 64))
fn("ce_seg_train", lambda x, t: F.cross_entropy(x, t), T(4, 21, 64, 64), I(21, 4, 64, 64), grad=True)
u01 = lambda: torch.rand(512, 1000) * 0.9 + 0.05  # noqa: E731
fn("gumbel_like", lambda x, u: F.softmax((x - torch.log(-torch.log(u))) / 0.5, -1), T(512, 1000), u01)
fn("entropy", lambda x: -(F.softmax(x, -1) * F.log_softmax(x, -1)).sum(-1), T(1000, 500))


# --- attention
def attn(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


fn("attn_small", attn, T(8, 8, 64, 64), T(8, 8, 64, 64), T(8, 8, 64, 64))
fn("attn_196", attn, T(2, 12, 197, 64), T(2, 12, 197, 64), T(2, 12, 197, 64))
fn("attn_bf16", attn, *[T(2, 12, 128, 64, dt=bf)] * 3)
fn(
    "attn_mask",
    lambda q, k, v, m: torch.softmax((q @ k.transpose(-1, -2) * 0.125).masked_fill(m, float("-inf")), -1) @ v,
    *[T(2, 8, 128, 64)] * 3,
    lambda: torch.ones(128, 128).triu(1).bool(),
)
fn("attn_train", attn, *[T(2, 8, 128, 64)] * 3, grad=True)
fn(
    "sdpa_gqa",
    lambda q, k, v: F.scaled_dot_product_attention(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1), is_causal=True),
    T(1, 16, 256, 64),
    T(1, 4, 256, 64),
    T(1, 4, 256, 64),
)
for L in (512, 4096, 16384):
    for dt in (torch.float32, bf):
        if L == 16384 and dt == torch.float32:
            continue
        fn(f"dec_{L}_{'bf16' if dt == bf else 'f32'}", attn, T(1, 16, 1, 64, dt=dt), T(1, 16, L, 64, dt=dt), T(1, 16, L, 64, dt=dt))
fn(
    "dec_gqa_2048",
    lambda q, k, v: attn(
        q,
        k[:, :, None].expand(1, 4, 4, 2048, 64).reshape(1, 16, 2048, 64),
        v[:, :, None].expand(1, 4, 4, 2048, 64).reshape(1, 16, 2048, 64),
    ),
    T(1, 16, 1, 64),
    T(1, 4, 2048, 64),
    T(1, 4, 2048, 64),
)
fn("dec_sdpa_4096", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), T(1, 16, 1, 64), T(1, 16, 4096, 64), T(1, 16, 4096, 64))
fn(
    "dec_sdpa_gqa_4096",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    T(1, 32, 1, 64),
    T(1, 8, 4096, 64),
    T(1, 8, 4096, 64),
)


def kvcat(q, k, v, k1, v1):
    k = torch.cat([k, k1], 2)
    v = torch.cat([v, v1], 2)
    return attn(q, k, v), k, v


fn("dec_cat_1024", kvcat, T(1, 16, 1, 64), T(1, 16, 1023, 64), T(1, 16, 1023, 64), T(1, 16, 1, 64), T(1, 16, 1, 64))


def kvidx(q, k, v, k1, v1, pos):
    k = k.index_copy(2, pos, k1)
    v = v.index_copy(2, pos, v1)
    return attn(q, k, v)


fn(
    "dec_index_copy",
    kvidx,
    T(1, 16, 1, 64),
    T(1, 16, 1024, 64),
    T(1, 16, 1024, 64),
    T(1, 16, 1, 64),
    T(1, 16, 1, 64),
    lambda: torch.tensor([700]),
)


def kvinpl(q, k, v, k1, v1, pos):
    k.index_copy_(2, pos, k1)
    v.index_copy_(2, pos, v1)
    return attn(q, k, v)


fn(
    "dec_index_copy_inpl",
    kvinpl,
    T(1, 16, 1, 64),
    T(1, 16, 4096, 64),
    T(1, 16, 4096, 64),
    T(1, 16, 1, 64),
    T(1, 16, 1, 64),
    lambda: torch.tensor([700]),
)


def rope(x, c, s):
    a, b = x.chunk(2, -1)
    return x * c + torch.cat([-b, a], -1) * s


fn("rope_bf16", rope, T(2, 16, 256, 64, dt=bf), T(256, 64, dt=bf), T(256, 64, dt=bf))
fn(
    "rope_interleaved",
    lambda x, c, s: torch.stack([x[..., ::2] * c - x[..., 1::2] * s, x[..., ::2] * s + x[..., 1::2] * c], -1).flatten(-2),
    T(2, 16, 256, 64),
    T(256, 32),
    T(256, 32),
)
fn(
    "rope_complex",
    lambda x, f: torch.view_as_real(torch.view_as_complex(x.reshape(2, 256, 16, 32, 2)) * f).flatten(3),
    T(2, 256, 16, 64),
    lambda: torch.polar(torch.ones(256, 1, 32), rn(256, 1, 32)),
)
fn(
    "alibi",
    lambda s, m: F.softmax(s * 0.1 + m[:, None, None] * (torch.arange(256)[None] - torch.arange(256)[:, None]).float(), -1),
    T(8, 256, 256),
    T(8),
)


# --- MoE
def moe_route(x, w):
    p = F.softmax(x @ w, -1)
    v, i = torch.topk(p, 2)
    v = v / v.sum(-1, keepdim=True)
    oh = F.one_hot(i, 8).float()
    return torch.einsum("tke,tk->te", oh, v)


fn("moe_route", moe_route, T(1024, 256), T(256, 8))


def moe_dense(x, g, w1, w2):
    p, i = torch.topk(F.softmax(x @ g, -1), 2)
    m = torch.zeros(x.shape[0], 8).scatter(1, i, p)
    h = F.silu(torch.einsum("td,edh->teh", x, w1))
    y = torch.einsum("teh,ehd->ted", h, w2)
    return torch.einsum("ted,te->td", y, m)


fn("moe_dense", moe_dense, T(64, 128), T(128, 8), T(8, 128, 256), T(8, 256, 128))
fn("moe_dispatch", lambda x, i: x.index_select(0, i), T(1024, 512), I(1024, 2048))
fn("moe_combine", lambda y, i, w: torch.zeros(1024, 512).index_add(0, i, y * w[:, None]), T(2048, 512), I(1024, 2048), T(2048))
fn("moe_scatter_add", lambda y, i: torch.zeros(1024, 512).scatter_add(0, i[:, None].expand(-1, 512), y), T(2048, 512), I(1024, 2048))
# --- gating
fn("swiglu_bf16", lambda a, b: F.silu(a) * b, T(256, 2816, dt=bf), T(256, 2816, dt=bf))
fn("geglu_bf16", lambda x: F.gelu(x[..., :1000]) * x[..., 1000:], T(333, 2000, dt=bf))
fn("glu_f32", lambda x: F.glu(x, -1), T(512, 2000))
fn("glu_dim1", lambda x: F.glu(x, 1), T(8, 64, 1000))
fn("swiglu_train", lambda a, b: F.silu(a) * b, T(256, 2816), T(256, 2816), grad=True)
fn("swiglu_bf16_train", lambda a, b: F.silu(a) * b, T(256, 2816, dt=bf), T(256, 2816, dt=bf), grad=True)
fn(
    "swiglu_mlp_bf16",
    lambda x, w1, w2, w3: (F.silu(x @ w1) * (x @ w2)) @ w3,
    T(32, 512, dt=bf),
    T(512, 1376, dt=bf),
    T(512, 1376, dt=bf),
    T(1376, 512, dt=bf),
)
fn("swiglu_mlp_1", lambda x, w1, w2, w3: (F.silu(x @ w1.t()) * (x @ w2.t())) @ w3.t(), T(1, 512), T(1376, 512), T(1376, 512), T(512, 1376))
# --- int8
I8 = lambda *s: lambda: torch.randint(-127, 127, s, dtype=torch.int8)
fn("int8_mm", lambda x, w, s: x @ (w.float() * s[:, None]).t(), T(16, 768), I8(768, 768), T(768))
fn("int8_mm_1", lambda x, w, s: x @ (w.float() * s[:, None]).t(), T(1, 1024), I8(1024, 1024), T(1024))
fn("int8_mm_bf16", lambda x, w, s: x @ (w.to(bf) * s[:, None]).t(), T(16, 768, dt=bf), I8(768, 768), T(768, dt=bf))
fn("int8_lin_scale_after", lambda x, w, s: F.linear(x, w.float()) * s, T(16, 768), I8(768, 768), T(768))
fn("int8_group", lambda x, w, s: x @ (w.float().view(768, 6, 128) * s[..., None]).view(768, 768).t(), T(8, 768), I8(768, 768), T(768, 6))
fn(
    "int4_unpack",
    lambda x, w, s: x @ (torch.stack([(w & 15).float() - 8, (w >> 4).float() - 8], -1).flatten(1) * s[:, None]).t(),
    T(8, 512),
    U8(512, 256),
    T(512),
)
fn("quantize", lambda x: torch.clamp(torch.round(x / 0.05), -128, 127).to(torch.int8), T(512, 1000))
fn(
    "quant_dyn",
    lambda x: (lambda s: (torch.clamp(torch.round(x / s), -128, 127).to(torch.int8), s))(x.abs().amax(-1, keepdim=True) / 127),
    T(512, 1000),
)
fn("fake_quant", lambda x: (torch.clamp(torch.round(x * 20) + 3, 0, 255) - 3) * 0.05, T(512, 1000))
# --- images and mixed
fn(
    "u8_norm",
    lambda x, m, s: (x.float() / 255 - m[:, None, None]) / s[:, None, None],
    U8(4, 3, 224, 224),
    T(3),
    lambda: torch.rand(3) + 0.5,
)
fn(
    "u8_hwc_norm",
    lambda x, m, s: ((x.permute(0, 3, 1, 2).float() / 255 - m[:, None, None]) / s[:, None, None]).contiguous(),
    U8(4, 224, 224, 3),
    T(3),
    lambda: torch.rand(3) + 0.5,
)
fn("u8_gray", lambda x: (x.float() * torch.tensor([0.299, 0.587, 0.114])).sum(-1), U8(4, 224, 224, 3))
fn("f16_f32", lambda a, b: a * b + 1, T(512, 1000, dt=torch.float16), T(512, 1000))
fn("i32_f32", lambda a, b: a * b + 1, I(100, 512, 1000, dt=torch.int32), T(512, 1000))
fn("i64_div", lambda a, b: a // b, I(10000, 256, 1000), lambda: torch.randint(1, 100, (256, 1000)))
fn("i64_mod", lambda a: a % 97, I(10000, 256, 1000))
fn("f64_mix", lambda a, b: (a * b).sin(), T(256, 1000, dt=torch.float64), T(256, 1000))
fn(
    "bool_mask",
    lambda x, m, n: torch.where(m & ~n, x, -x),
    T(512, 1000),
    lambda: torch.rand(512, 1000) > 0.5,
    lambda: torch.rand(512, 1000) > 0.5,
)
fn("where_bcast", lambda m, x, y: torch.where(m[:, None], x, y), lambda: torch.rand(512) > 0.5, T(512, 1000), T(1000))
fn("to_f16", lambda x: x.half(), T(512, 1000))
fn("to_bf16_t", lambda x: x.t().contiguous().bfloat16(), T(512, 1000))
fn("i8_to_i64", lambda x: x.long() + 1, I8(512, 1000))
# --- gather / scatter
fn("emb_big", lambda w, i: F.embedding(i, w), T(30000, 768), I(30000, 8, 128))
fn("emb_small", lambda w, i: F.embedding(i, w), T(10000, 16), I(10000, 64, 200))
fn("emb_ln", lambda w, i, g, b: F.layer_norm(F.embedding(i, w), (256,), g, b), T(30000, 256), I(30000, 8, 128), T(256), T(256))
fn("emb_add_pos", lambda w, p, i: F.embedding(i, w) + p, T(30000, 256), T(128, 256), I(30000, 8, 128))
fn("emb_bf16", lambda w, i: F.embedding(i, w), T(30000, 512, dt=bf), I(30000, 8, 128))
fn("emb_train", lambda w, i: F.embedding(i, w), T(5000, 64), I(5000, 16, 64), grad=True)
fn("emb_bag_mean", lambda w, i: F.embedding_bag(i, w, mode="mean"), T(10000, 64), I(10000, 256, 20))
fn("emb_bag_max", lambda w, i: F.embedding_bag(i, w, mode="max"), T(10000, 64), I(10000, 256, 20))
fn("emb_bag_sum_off", lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"), T(10000, 64), I(10000, 5120), lambda: torch.arange(0, 5120, 20))
fn("one_hot", lambda i: F.one_hot(i, 100), I(100, 4096))
fn("gather_last", lambda x, i: x.gather(1, i), T(512, 1000), I(1000, 512, 100))
fn("gather_first", lambda x, i: x.gather(0, i), T(1000, 256), I(1000, 500, 256))
fn("index_2d", lambda x, i, j: x[i, j], T(512, 1000), I(512, 50000), I(1000, 50000))
fn("index_rows_neg", lambda x, i: x[:, i], T(64, 100, 64), I(100, 150))
fn("index_put", lambda x, i, j, v: x.index_put((i, j), v), T(512, 1000), I(512, 5000), I(1000, 5000), T(5000))
fn("index_put_acc", lambda x, i, v: x.index_put((i,), v, accumulate=True), T(1000, 64), I(1000, 5000), T(5000, 64))
fn("index_add_rows", lambda x, i, v: x.index_add(0, i, v), T(1000, 64), I(1000, 10000), T(10000, 64))
fn("scatter_dim1", lambda x, i, v: x.scatter(1, i, v), T(512, 1000), I(1000, 512, 50), T(512, 50))
fn("scatter_add_dim1", lambda x, i, v: x.scatter_add(1, i, v), T(512, 100), I(100, 512, 500), T(512, 500))
fn("scatter_reduce_amax", lambda x, i, v: x.scatter_reduce(0, i, v, "amax"), T(1000), I(1000, 100000), T(100000))
fn("bincount_like", lambda i: torch.zeros(256, dtype=torch.int64).scatter_add(0, i, torch.ones_like(i)), I(256, 100000))
fn("histc", lambda x: torch.histc(x, 64, -3, 3), T(200000))
fn("bucketize", lambda x, b: torch.bucketize(x, b), T(100000), lambda: torch.linspace(-3, 3, 64))
fn("searchsorted", lambda b, x: torch.searchsorted(b, x), lambda: torch.sort(rn(10000))[0], T(50000))
fn("take_along", lambda x, i: torch.take_along_dim(x, i[..., None], 1), T(64, 100, 128), I(100, 64, 20))
fn("masked_scatter_like", lambda x, m: x * m.float(), T(512, 1000), lambda: torch.rand(512, 1000) > 0.5)
fn("take", lambda x, i: torch.take(x, i), T(512, 1000), I(512000, 100000))
# --- scans, sorts
fn("cumsum_last", lambda x: x.cumsum(-1), T(512, 1000))
fn("cumsum_first", lambda x: x.cumsum(0), T(1000, 512))
fn("cumsum_1d", lambda x: x.cumsum(0), T(300000))
fn("cumsum_i64", lambda x: x.cumsum(-1), I(2, 512, 1000))
fn("cumprod", lambda x: x.cumprod(-1), T(512, 100))
fn("cummax", lambda x: x.cummax(-1), T(512, 500))
fn("logcumsumexp", lambda x: x.logcumsumexp(-1), T(256, 300))
fn("sort_rows", lambda x: x.sort(-1), T(256, 500))
fn("sort_dim0", lambda x: x.sort(0), T(500, 100))
fn("argsort_stable", lambda x: torch.argsort(x, stable=True), I(1000, 50000))
fn("topk_rows", lambda x: x.topk(10), T(256, 1000))
fn("topk_small", lambda x: x.topk(2), T(8192, 16))
fn("topk_dim1", lambda x: x.topk(3, 1), T(16, 64, 100))
fn("kthvalue", lambda x: x.kthvalue(100, -1), T(256, 500))
fn("median", lambda x: x.median(-1), T(256, 501))
fn("quantile", lambda x: torch.quantile(x, 0.9, dim=-1), T(256, 500))
fn(
    "unique_like",
    lambda x: (lambda s: torch.cat([torch.ones(1, dtype=torch.bool), s[1:] != s[:-1]]).cumsum(0))(x.sort()[0]),
    I(1000, 20000),
)
fn(
    "nms_like",
    lambda b: (lambda a, lt, rb: ((rb - lt).clamp(min=0).prod(-1)) / (a[:, None] + a - (rb - lt).clamp(min=0).prod(-1)))(
        (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]), torch.max(b[:, None, :2], b[:, :2]), torch.min(b[:, None, 2:], b[:, 2:])
    ),
    T(500, 4),
)
# --- movement
fn("cat_last", lambda a, b, c: torch.cat([a, b, c], -1), T(1000, 130), T(1000, 67), T(1000, 255))
fn("cat_first", lambda a, b: torch.cat([a, b], 0), T(500, 500), T(700, 500))
fn("cat_channels", lambda a, b: torch.cat([a, b], 1), T(4, 64, 28, 28), T(4, 32, 28, 28))
fn("cat_channels_cl", lambda a, b: torch.cat([a, b], 1), T(4, 64, 28, 28, cl=True), T(4, 32, 28, 28, cl=True))
fn("stack_last", lambda a, b: torch.stack([a, b], -1), T(500, 500), T(500, 500))
fn("stack_many", lambda *a: torch.stack(a, 0), *[T(100, 100)] * 12)
fn("split_sum", lambda x: sum(x.split([100, 200, 300, 400], 1)[i].sum() for i in range(4)), T(500, 1000))
fn("pad_reflect", lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"), T(4, 32, 56, 56))
fn("pad_circular", lambda x: F.pad(x, (2, 2, 2, 2), mode="circular"), T(4, 32, 56, 56))
fn("pad_replicate", lambda x: F.pad(x, (1, 2, 3, 4), mode="replicate"), T(4, 32, 56, 56))
fn("pad_const", lambda x: F.pad(x, (1, 1, 1, 1)), T(4, 64, 56, 56))
fn("pad_const_cl", lambda x: F.pad(x, (1, 1, 1, 1)), T(4, 64, 56, 56, cl=True))
fn("roll", lambda x: torch.roll(x, (3, 3), (1, 2)), T(4, 56, 56, 96))
fn("roll_last", lambda x: torch.roll(x, 7, -1), T(512, 1000))
fn("flip", lambda x: x.flip(-1), T(512, 1000))
fn("flip_hw", lambda x: x.flip((2,)), T(4, 32, 56, 56))
fn("tile", lambda x: x.repeat(4, 3), T(200, 201))
fn("repeat_interleave", lambda x: x.repeat_interleave(3, 1), T(256, 300))
fn("unfold1d", lambda x: x.unfold(-1, 400, 160) * torch.hann_window(400), T(4, 16000))
fn("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), T(4, 64, 48, 48))
fn("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), T(4, 16, 96, 96))
fn("channel_shuffle", lambda x: x.view(4, 2, 58, 28, 28).transpose(1, 2).reshape(4, 116, 28, 28), T(4, 116, 28, 28))
fn("im2col", lambda x: F.unfold(x, 3, padding=1), T(2, 32, 28, 28))
fn("col2im", lambda x: F.fold(x, (28, 28), 3, padding=1), T(2, 288, 784))
fn("transpose_copy", lambda x: x.transpose(0, 1).contiguous(), T(1000, 700))
fn("permute_0213", lambda x: x.permute(0, 2, 1, 3).contiguous(), T(8, 128, 12, 64))
fn("permute_021", lambda x: x.permute(0, 2, 1).contiguous(), T(16, 197, 192))
fn("permute_bf16_t", lambda x: x.t().contiguous(), T(1000, 700, dt=bf))
fn("nchw_nhwc", lambda x: x.contiguous(memory_format=CL), T(8, 64, 28, 28))
fn("patchify", lambda x: x.reshape(4, 3, 14, 16, 14, 16).permute(0, 2, 4, 1, 3, 5).reshape(4, 196, 768), T(4, 3, 224, 224))
fn("window_part", lambda x: x.view(2, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 96), T(2, 56, 56, 96))
fn("space_slice", lambda x: torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1), T(2, 16, 128, 128))
fn("meshgrid", lambda a, b: torch.stack(torch.meshgrid(a, b, indexing="ij"), -1), T(400), T(500))
fn("tril", lambda x: x.tril(), T(700, 701))
fn("triu_mul", lambda x: x.triu(1) * 2, T(16, 128, 128))
fn("diag_embed", lambda x: torch.diag_embed(x), T(64, 64))
fn("copy_slice", lambda x, y: torch.slice_scatter(x, y, 1, 100, 300), T(512, 1000), T(512, 200))
# --- matmul variety
fn("bmm_4", torch.bmm, T(4000, 4, 4), T(4000, 4, 4))
fn("bmm_3x3_vec", lambda a, b: (a @ b[..., None])[..., 0], T(20000, 3, 3), T(20000, 3))
fn("bmm_16", torch.bmm, T(1000, 16, 16), T(1000, 16, 16))
fn("bmm_64", torch.bmm, T(128, 64, 64), T(128, 64, 64))
fn("bmm_33", torch.bmm, T(500, 33, 17), T(500, 17, 29))
fn("matvec", torch.mv, T(2000, 1001), T(1001))
for r in (1, 2, 4):
    fn(f"linear_{r}_row", F.linear, T(r, 768), T(3072, 768), T(3072))
    fn(f"addmm_{r}_row", torch.addmm, T(3072), T(r, 768), T(768, 3072))
fn("linear_1_row_bf16", F.linear, T(1, 1024, dt=bf), T(4096, 1024, dt=bf), T(4096, dt=bf))
fn("vecmat", lambda v, a: v @ a, T(1000), T(1000, 1001))
fn("tall_skinny", torch.mm, T(20000, 16), T(16, 16))
fn("skinny_k", lambda a, b: a.t() @ b, T(20000, 16), T(20000, 8))
fn("outer", torch.outer, T(700), T(701))
fn("dot", torch.dot, T(300000), T(300000))
fn("mm_odd", torch.mm, T(127, 131), T(131, 137))
fn("mm_i64", torch.mm, I(10, 64, 64), I(10, 64, 64))
fn("mm_f64", torch.mm, T(128, 128, dt=torch.float64), T(128, 128, dt=torch.float64))
fn("linear_gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)), T(128, 256), T(512, 256), T(512))
fn("einsum_bhid", lambda a, b: torch.einsum("bihd,bjhd->bhij", a, b), T(2, 128, 8, 32), T(2, 128, 8, 32))
fn("einsum_outer3", lambda a, b, c: torch.einsum("bi,bj,bk->bijk", a, b, c), T(16, 20), T(16, 20), T(16, 30))
fn("einsum_diag", lambda a: torch.einsum("bii->bi", a), T(500, 64, 64))
fn("einsum_bilinear", lambda x, w, y: torch.einsum("bi,oij,bj->bo", x, w, y), T(32, 40), T(16, 40, 40), T(32, 40))
fn("cdist", lambda a, b: torch.cdist(a, b), T(500, 32), T(400, 32))
fn("cdist_p1", lambda a, b: torch.cdist(a, b, p=1), T(300, 16), T(200, 16))
fn("pairwise_explicit", lambda a, b: ((a[:, None] - b) ** 2).sum(-1), T(500, 8), T(400, 8))
fn("cosine_sim", lambda a, b: F.cosine_similarity(a, b, dim=-1), T(2000, 128), T(2000, 128))
fn("cosine_mat", lambda a, b: F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t(), T(300, 128), T(300, 128))
fn("lora", lambda x, w, a, b: x @ w + (x @ a) @ b, T(64, 512), T(512, 512), T(512, 8), T(8, 512))


# --- conv
def conv(c, x, cl=False, dt=torch.float32, train=False):
    def make():
        m = c().to(dt).eval()
        y = x().to(dt)
        if cl:
            m = m.to(memory_format=CL)
            y = y.to(memory_format=CL)
        return m, (y,)

    return make


CV = {}
CV["conv1d"] = conv(lambda: nn.Conv1d(64, 64, 3, padding=1), T(8, 64, 256))
CV["conv1d_dw"] = conv(lambda: nn.Conv1d(64, 64, 7, padding=3, groups=64), T(8, 64, 256))
CV["conv1d_dil"] = conv(lambda: nn.Conv1d(32, 32, 3, padding=8, dilation=8), T(4, 32, 1000))
CV["conv1d_1in"] = conv(lambda: nn.Conv1d(1, 64, 80, stride=4), T(4, 1, 8000))
CV["conv3d"] = conv(lambda: nn.Conv3d(8, 16, 3, padding=1), T(1, 8, 12, 24, 24))
CV["dw3"] = conv(lambda: nn.Conv2d(96, 96, 3, padding=1, groups=96), T(2, 96, 28, 28))
CV["dw5s2"] = conv(lambda: nn.Conv2d(96, 96, 5, stride=2, padding=2, groups=96), T(2, 96, 28, 28))
CV["dw7"] = conv(lambda: nn.Conv2d(96, 96, 7, padding=3, groups=96), T(2, 96, 28, 28))
CV["dw3_cl"] = conv(lambda: nn.Conv2d(96, 96, 3, padding=1, groups=96), T(2, 96, 28, 28), cl=True)
CV["dw_mult"] = conv(lambda: nn.Conv2d(32, 64, 3, padding=1, groups=32), T(2, 32, 28, 28))
CV["grouped"] = conv(lambda: nn.Conv2d(64, 64, 3, padding=1, groups=8), T(2, 64, 28, 28))
CV["conv_dil"] = conv(lambda: nn.Conv2d(32, 32, 3, padding=2, dilation=2), T(2, 32, 28, 28))
CV["convT"] = conv(lambda: nn.ConvTranspose2d(32, 16, 4, 2, 1), T(2, 32, 28, 28))
CV["convT2"] = conv(lambda: nn.ConvTranspose2d(64, 32, 2, 2), T(2, 64, 28, 28))
CV["conv1x1"] = conv(lambda: nn.Conv2d(64, 128, 1), T(4, 64, 28, 28))
CV["conv1x1_cl"] = conv(lambda: nn.Conv2d(64, 128, 1), T(4, 64, 28, 28), cl=True)
CV["conv1x1_s2"] = conv(lambda: nn.Conv2d(64, 128, 1, stride=2), T(4, 64, 28, 28))
CV["conv_odd"] = conv(lambda: nn.Conv2d(37, 53, 3, padding=1), T(2, 37, 29, 31))
CV["conv_1ch"] = conv(lambda: nn.Conv2d(1, 16, 5), T(32, 1, 28, 28))
CV["conv_stem"] = conv(lambda: nn.Conv2d(3, 32, 3, 2, 1), T(2, 3, 224, 224))
CV["conv_stem16"] = conv(lambda: nn.Conv2d(3, 384, 16, 16), T(2, 3, 224, 224))
CV["conv_1out"] = conv(lambda: nn.Conv2d(32, 1, 3, padding=1), T(2, 32, 64, 64))
CV["conv_bf16"] = conv(lambda: nn.Conv2d(32, 64, 3, padding=1), T(2, 32, 28, 28), dt=bf)
CV["conv_5x5"] = conv(lambda: nn.Conv2d(16, 32, 5, padding=2), T(4, 16, 28, 28))
CV["conv_relu_res"] = conv(
    lambda: type(
        "M",
        (nn.Module,),
        {
            "__init__": lambda s: (nn.Module.__init__(s), setattr(s, "c", nn.Conv2d(64, 64, 3, padding=1)))[0],
            "forward": lambda s, x: F.relu(s.c(x) + x),
        },
    )(),
    T(2, 64, 28, 28),
)
for k, v in CV.items():
    ROWS[k] = Row(v, False)
ROWS["conv_train"] = Row(
    conv(lambda: nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()).train(), T(4, 16, 28, 28)), True
)
ROWS["dw3_train"] = Row(conv(lambda: nn.Conv2d(48, 48, 3, padding=1, groups=48), T(2, 48, 28, 28)), True)
# --- activations
S = (512, 1000)
acts = dict(
    gelu=F.gelu,
    gelu_tanh=lambda x: F.gelu(x, approximate="tanh"),
    silu=F.silu,
    mish=F.mish,
    softplus=F.softplus,
    hardswish=F.hardswish,
    elu=F.elu,
    selu=F.selu,
    celu=F.celu,
    leaky=F.leaky_relu,
    erf=torch.erf,
    erfc=torch.erfc,
    tanh=torch.tanh,
    sigmoid=torch.sigmoid,
    logsigmoid=F.logsigmoid,
    softsign=F.softsign,
    tanhshrink=F.tanhshrink,
    hardtanh=F.hardtanh,
    exp=torch.exp,
    expm1=torch.expm1,
    sin=torch.sin,
    cos=torch.cos,
    tan=torch.tan,
    atan=torch.atan,
    sinh=torch.sinh,
    asinh=torch.asinh,
    lgamma=torch.lgamma,
    digamma=torch.digamma,
    i0=torch.special.i0,
    i0e=torch.special.i0e,
    i1=torch.special.i1,
    ndtr=torch.special.ndtr,
    erfcx=torch.special.erfcx,
    j0=torch.special.bessel_j0,
    j1=torch.special.bessel_j1,
    log_ndtr=torch.special.log_ndtr,
    sinc=torch.sinc,
    relu=torch.relu,
    neg=torch.neg,
    sqrt=lambda x: x.abs().sqrt(),
    rsqrt=lambda x: (x.abs() + 0.1).rsqrt(),
    log=lambda x: x.abs().log(),
    log1p=lambda x: x.abs().log1p(),
    pow25=lambda x: x.abs().pow(2.5),
    pow3=lambda x: x**3,
    round=torch.round,
    frac=torch.frac,
    sign=torch.sign,
    exp2=torch.exp2,
    log2=lambda x: x.abs().log2(),
    cosh=torch.cosh,
    nan_to_num=torch.nan_to_num,
    logit=lambda x: torch.logit(x, 1e-3),
    reciprocal=torch.reciprocal,
)
for k, f in acts.items():
    fn("act_" + k, f, T(*S))
for k in ("erfinv", "atanh", "asin", "acos", "ndtri"):
    f = getattr(torch, k, None) or getattr(torch.special, k)
    fn("act_" + k, f, lambda: torch.rand(*S) * 0.98 + 0.01)
fn("act_entr", torch.special.entr, lambda: torch.rand(*S))
fn("act_xlogy", torch.xlogy, lambda: torch.rand(*S), lambda: torch.rand(*S))
fn("act_zeta", torch.special.zeta, lambda: torch.rand(100, 100) * 3 + 1.5, lambda: torch.rand(100, 100) * 3 + 1)
fn("act_polygamma", lambda x: torch.polygamma(1, x), lambda: torch.rand(*S) + 0.5)
fn("act_igamma", torch.igamma, lambda: torch.rand(100, 100) * 3 + 0.5, lambda: torch.rand(100, 100) * 3 + 0.1)
fn("act_atan2", torch.atan2, T(*S), T(*S))
fn("act_hypot", torch.hypot, T(*S), T(*S))
fn("act_fmod", torch.fmod, T(*S), T(*S))
fn("act_remainder", torch.remainder, T(*S), T(*S))
fn("act_pow_tt", lambda a, b: a.abs().pow(b), T(*S), T(*S))
fn("act_logaddexp", torch.logaddexp, T(*S), T(*S))
fn("act_copysign", torch.copysign, T(*S), T(*S))
fn("act_nextafter", torch.nextafter, T(*S), T(*S))
fn("act_lerp", torch.lerp, T(*S), T(*S), T(*S))
fn("act_prelu", lambda x, w: F.prelu(x, w), T(8, 64, 30, 30), T(64))
fn("act_addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.5), T(*S), T(*S), T(*S))
for k in ("gelu", "silu", "tanh", "erf", "mish", "exp", "sigmoid"):
    fn(f"act_{k}_bf16", acts[k], T(*S, dt=bf))
for k in ("gelu", "tanh", "exp", "sigmoid", "log", "sin"):
    fn(f"act_{k}_f64", acts[k], T(256, 500, dt=torch.float64))
for k in ("gelu", "silu"):
    fn(f"act_{k}_train", acts[k], T(*S), grad=True)
fn("pointwise_strided", lambda a, b: a[:, ::2] * b[:, 1::2] + 1, T(1000, 1000), T(1000, 1000))
fn("pointwise_transposed", lambda a, b: a + b.t(), T(700, 700), T(700, 700))
fn("pointwise_bcast_mid", lambda a, b: a * b[:, None, :], T(32, 100, 160), T(32, 160))
fn("add_i32", lambda a, b: a + b, I(9, 512, 1000, dt=torch.int32), I(9, 512, 1000, dt=torch.int32))
fn("add_u8", lambda a, b: a + b, U8(512, 1000), U8(512, 1000))
fn("bitwise", lambda a, b: (a ^ b) & (a << 2), I(999, 512, 1000, dt=torch.int32), I(999, 512, 1000, dt=torch.int32))
# --- complex
C = lambda *s: lambda: torch.randn(*s, dtype=torch.complex64)
fn("cplx_mul", lambda a, b: a * b, C(256, 500), C(256, 500))
fn("cplx_abs", torch.abs, C(256, 500))
fn("cplx_exp", torch.exp, C(256, 200))
fn("cplx_angle", torch.angle, C(256, 500))
fn("cplx_muladd_real", lambda a, b: (a * b).real + (a * b).imag, C(256, 500), C(256, 500))
# --- losses
fn("huber", lambda a, b: F.huber_loss(a, b), T(*S), T(*S))
fn("smooth_l1", lambda a, b: F.smooth_l1_loss(a, b), T(*S), T(*S))
fn("mse_train", lambda a, b: F.mse_loss(a, b), T(*S), T(*S), grad=True)
fn("bce_logits", lambda a, b: F.binary_cross_entropy_with_logits(a, b), T(*S), lambda: torch.rand(*S))
fn("bce_train", lambda a, b: F.binary_cross_entropy_with_logits(a, b.detach()), T(*S), lambda: torch.rand(*S), grad=True)
fn("bce", lambda a, b: F.binary_cross_entropy(a, b), lambda: torch.rand(*S) * 0.9 + 0.05, lambda: torch.rand(*S))
fn("kl", lambda a, b: F.kl_div(F.log_softmax(a, -1), F.softmax(b, -1), reduction="batchmean"), T(*S), T(*S))
fn("triplet", lambda a, p, n: F.triplet_margin_loss(a, p, n), T(1000, 128), T(1000, 128), T(1000, 128))
fn(
    "focal",
    lambda x, t: (lambda p: (-(t * (1 - p) ** 2 * torch.log(p + 1e-6) + (1 - t) * p**2 * torch.log(1 - p + 1e-6))).mean())(
        torch.sigmoid(x)
    ),
    T(*S),
    lambda: (torch.rand(*S) > 0.5).float(),
)
fn(
    "dice",
    lambda x, t: 1 - (2 * (x.sigmoid() * t).sum((2, 3)) + 1) / ((x.sigmoid() + t).sum((2, 3)) + 1),
    T(8, 4, 64, 64),
    lambda: (torch.rand(8, 4, 64, 64) > 0.5).float(),
)
fn("margin_rank", lambda a, b, y: F.margin_ranking_loss(a, b, y), T(100000), T(100000), lambda: torch.sign(rn(100000)))
fn("nll_gather", lambda x, t: -F.log_softmax(x, -1).gather(1, t[:, None]).mean(), T(256, 5000), I(5000, 256))
fn("cos_emb_loss", lambda a, b, y: F.cosine_embedding_loss(a, b, y), T(1000, 128), T(1000, 128), lambda: torch.sign(rn(1000)))


# --- training blocks
def block_train(m, *a):
    return Row(mk(m, *a, train=True), True)


ROWS["mlp_train"] = block_train(lambda: nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64)), T(256, 128))
ROWS["mlp_drop_train"] = block_train(
    lambda: nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 64)), T(256, 128)
)
ROWS["res_ln_drop"] = Row(
    lambda: (lambda x, r, w, b: F.layer_norm(x + F.dropout(r, 0.1, True), (512,), w, b), (rn(512, 512), rn(512, 512), rn(512), rn(512))),
    True,
)
ROWS["convblock_train"] = block_train(
    lambda: nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(16, 32, 3, padding=1)
    ),
    T(4, 8, 32, 32),
)
ROWS["gru_cells"] = Row(
    lambda: (lambda c: (lambda x, h: [h := c(x[i], h) for i in range(16)][-1], (rn(16, 16, 64), rn(16, 64))))(nn.GRUCell(64, 64)), False
)


class LstmF(nn.Module):
    def __init__(s):
        super().__init__()
        s.c = nn.LSTMCell(48, 96)

    def forward(s, x):
        h = c = torch.zeros(x.shape[1], 96)
        o = []
        for t in range(x.shape[0]):
            h, c = s.c(x[t], (h, c))
            o.append(h)
        return torch.stack(o)


ROWS["lstm_cells"] = Row(mk(LstmF, T(20, 8, 48)), False)
ROWS["encoder_layer"] = Row(mk(lambda: nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, norm_first=True), T(4, 64, 128)), False)
ROWS["encoder_layer_train"] = Row(
    mk(lambda: nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0), T(4, 64, 128), train=True), True
)


class SE(nn.Module):
    def __init__(s):
        super().__init__()
        s.a = nn.Conv2d(96, 24, 1)
        s.b = nn.Conv2d(24, 96, 1)

    def forward(s, x):
        return x * torch.sigmoid(s.b(F.relu(s.a(x.mean((2, 3), keepdim=True)))))


ROWS["se_block"] = Row(mk(SE, T(4, 96, 28, 28)), False)


class CXN(nn.Module):
    def __init__(s):
        super().__init__()
        s.d = nn.Conv2d(64, 64, 7, padding=3, groups=64)
        s.n = nn.LayerNorm(64)
        s.a = nn.Linear(64, 256)
        s.b = nn.Linear(256, 64)

    def forward(s, x):
        return x + s.b(F.gelu(s.a(s.n(s.d(x).permute(0, 2, 3, 1))))).permute(0, 3, 1, 2)


ROWS["convnext_block"] = Row(mk(CXN, T(2, 64, 28, 28)), False)
ROWS["convnext_train"] = Row(mk(CXN, T(2, 64, 28, 28)), True)
fn("sgd_foreach", lambda *a: torch._foreach_add(list(a[:20]), list(a[20:]), alpha=-0.1), *[T(64, 128)] * 40)
fn(
    "clip_norm",
    lambda *a: (lambda n: [g * (1 / (n + 1e-6)).clamp(max=1) for g in a])(
        torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in a]))
    ),
    *[T(64, 256)] * 20,
)
fn("ema", lambda *a: torch._foreach_lerp(list(a[:20]), list(a[20:]), 0.01), *[T(64, 256)] * 40)
# --- fft, grid sample
fn("fft_filter", lambda x, w: torch.fft.irfft(torch.fft.rfft(x) * w, n=1024), T(64, 1024), C(513))
fn(
    "fno2d",
    lambda x, w: torch.fft.irfft2(torch.einsum("bixy,ioxy->boxy", torch.fft.rfft2(x)[:, :, :12, :12], w), s=(64, 64)),
    T(4, 16, 64, 64),
    C(16, 16, 12, 12),
)
fn("stft_mag", lambda x: torch.stft(x, 400, 160, window=torch.hann_window(400), return_complex=True).abs(), T(4, 16000))


def gs(n, c, h, w, oh, ow, **k):
    return (lambda x, g: F.grid_sample(x, g, align_corners=False, **k)), T(n, c, h, w), lambda: torch.rand(n, oh, ow, 2) * 2.2 - 1.1


fn("grid_small", *gs(2, 8, 32, 32, 40, 40))
fn("grid_mid", *gs(4, 16, 64, 64, 64, 64))
fn("grid_big", *gs(1, 3, 512, 512, 512, 512))
fn("grid_nearest", *gs(2, 8, 64, 64, 64, 64, mode="nearest"))
fn("grid_border", *gs(2, 8, 64, 64, 64, 64, padding_mode="border"))
fn("grid_bicubic", *gs(2, 4, 48, 48, 48, 48, mode="bicubic"))
fn("grid_reflect", *gs(2, 8, 64, 64, 64, 64, padding_mode="reflection"))
fn(
    "affine_grid_sample",
    lambda x, t: F.grid_sample(x, F.affine_grid(t, (4, 3, 96, 96), align_corners=False), align_corners=False),
    T(4, 3, 96, 96),
    T(4, 2, 3),
)
fn(
    "warp_flow",
    lambda x, f: F.grid_sample(
        x,
        (
            torch.stack(torch.meshgrid(torch.linspace(-1, 1, 64), torch.linspace(-1, 1, 64), indexing="xy"), -1)
            + f.permute(0, 2, 3, 1) * 0.05
        ),
        align_corners=True,
    ),
    T(2, 32, 64, 64),
    T(2, 2, 64, 64),
)
fn("grid_cl", lambda x, g: F.grid_sample(x, g, align_corners=False), T(2, 32, 64, 64, cl=True), lambda: torch.rand(2, 64, 64, 2) * 2 - 1)
fn(
    "grid_train",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    T(2, 8, 32, 32),
    lambda: torch.rand(2, 32, 32, 2) * 2 - 1,
    grad=True,
)
fn(
    "roi_like",
    lambda x, g: F.grid_sample(x.expand(32, -1, -1, -1), g, align_corners=False),
    T(1, 32, 50, 50),
    lambda: torch.rand(32, 7, 7, 2) * 2 - 1,
)
# --- trained resampling/pooling
fn("interp_train", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), T(2, 8, 32, 32), grad=True)
fn("maxpool_train", lambda x: F.max_pool2d(x, 3, 2, 1), T(4, 32, 56, 56), grad=True)
fn("avgpool_train", lambda x: F.avg_pool2d(x, 2), T(4, 32, 56, 56), grad=True)
fn("adapt_avg_train", lambda x: F.adaptive_avg_pool2d(x, (5, 5)), T(4, 64, 13, 13), grad=True)
fn("softmax_train", lambda x: F.softmax(x, -1), T(96, 64, 64), grad=True)
fn("rms_train", lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w, T(512, 512), T(512), grad=True)
fn("in_train", lambda x: F.instance_norm(x), T(4, 16, 32, 32), grad=True)
fn("pad_reflect_train", lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"), T(2, 16, 32, 32), grad=True)
fn("gather_train", lambda x, i: x.gather(1, i), T(256, 500), I(500, 256, 100), grad=True)
fn("cumsum_train", lambda x: x.cumsum(-1), T(256, 500), grad=True)


# --- timing


class Timing(NamedTuple):
    eager_ms: float
    tenon_ms: float
    ratio: float  # median of the blocks'
    best: float  # of the best blocks


def step(function, args, grad):
    """A call without arguments, and gradients of it if asked for."""
    if not grad:
        return lambda: function(*args)
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    leaves += list(function.parameters()) if isinstance(function, nn.Module) else []
    torch.manual_seed(7)
    out = function(*args)
    seed = torch.randn_like(out) if out.dim() else torch.ones_like(out)
    return lambda: torch.autograd.grad(function(*args), leaves, seed, allow_unused=True)


def measure(row: Row, blocks: int, block_ms: float, clock) -> Timing:
    torch._dynamo.reset()
    torch.manual_seed(0)
    function, args = row.make()
    if row.grad:
        args = tuple(a.requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args)
    with torch.set_grad_enabled(row.grad):
        compiled = torch.compile(function, backend="tenon", fullgraph=True, dynamic=False)
        sides = [step(function, args, row.grad), step(compiled, args, row.grad)]

        def timed(run, count):
            began = clock()
            for _ in range(count):
                run()
            return (clock() - began) / count

        counts, times = [], [[], []]
        for run in sides:
            timed(run, 3)
            counts.append(max(1, int(block_ms / 1e3 / max(min(timed(run, 1) for _ in range(3)), 1e-7))))
        for block in range(blocks):
            for side in (0, 1) if block % 2 else (1, 0):
                timed(sides[side], 1)
                times[side].append(timed(sides[side], counts[side]))
    eager, tenon = (min(t) for t in times)
    return Timing(eager * 1e3, tenon * 1e3, statistics.median(y / x for x, y in zip(*times, strict=True)), tenon / eager)


def table(timings: dict[str, Timing]) -> str:
    lines = ["| row | eager ms | × eager | best blocks |", "|---|---|---|---|"]
    lines += [f"| {name} | {t.eager_ms:.3g} | {t.ratio:.2f} | {t.best:.2f} |" for name, t in timings.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of rows' names")
    parser.add_argument("--blocks", type=int, default=11)
    parser.add_argument("--block-ms", type=float, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="CPU time of one thread")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    options = parser.parse_args()
    import torch_tenon  # noqa: F401

    torch.set_num_threads(1 if options.cpu else options.threads)
    clock = time.thread_time if options.cpu else time.perf_counter
    timings = {}
    for name, row in ROWS.items():
        if options.names and not any(part in name for part in options.names):
            continue
        try:
            t = timings[name] = measure(row, options.blocks, options.block_ms, clock)
            print(f"{name:28s} eager {t.eager_ms:8.4f} ms  tenon {t.tenon_ms:8.4f} ms  {t.ratio:6.3f}  best {t.best:6.3f}", flush=True)
        except Exception as error:
            print(f"{name:28s} failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump({n: t._asdict() for n, t in timings.items()}, file, indent=1)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(table(timings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
