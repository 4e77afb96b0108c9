"""Networks of sequences, by hand, small: sound, text, states."""

import torch
import torch.nn.functional as F
from torch import nn

from models import nets
from models.cases import case, class_loss, ids, next_token_loss


class WaveNet(nn.Module):
    """Dilated causal convolutions with gates, residuals and skips (van den Oord et al. 2016)."""

    def __init__(self, width=24, rates=(1, 2, 4, 8), levels=32):
        super().__init__()
        self.rates, self.embed = rates, nn.Embedding(levels, width)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=rate) for rate in rates)
        self.mixes = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in rates)
        self.head = nn.Conv1d(width, levels, 1)

    def forward(self, samples):
        x, total = self.embed(samples).mT, 0.0
        for rate, gate, mix in zip(self.rates, self.gates, self.mixes):
            a, b = gate(F.pad(x, (rate, 0))).chunk(2, 1)
            residual, skip = mix(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, total = x + residual, total + skip
        return self.head(F.relu(total)).mT


@case("wavenet", "cnn", loss=next_token_loss)
def _wavenet():
    return WaveNet(), (ids(32, 2, 64),)


class TCN(nn.Module):
    """Causal convolutions with weight norms (Bai et al. 2018)."""

    def __init__(self, width=24, classes=6):
        super().__init__()
        normed = lambda a, b, rate: nn.utils.parametrizations.weight_norm(nn.Conv1d(a, b, 3, padding=2 * rate, dilation=rate))
        self.rates = (1, 2, 4)
        self.convs = nn.ModuleList(normed(4 if rate == 1 else width, width, rate) for rate in self.rates)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for rate, conv in zip(self.rates, self.convs):
            y = F.relu(conv(x)[..., : -2 * rate])
            x = y if x.shape != y.shape else x + y
        return self.head(x[..., -1])


@case("tcn", "cnn", quick=True, loss=class_loss)
def _tcn():
    return TCN(), (torch.randn(4, 4, 40),)


class GlobalNorm(nn.GroupNorm):
    def __init__(self, channels):
        super().__init__(1, channels, eps=1e-8)


class ConvTasNet(nn.Module):
    """Two speakers by masks on a learned basis of overlapping windows (Luo & Mesgarani 2019)."""

    def __init__(self, filters=32, width=24, rates=(1, 2, 4)):
        super().__init__()
        self.encoder, self.decoder = nn.Conv1d(1, filters, 16, 8, bias=False), nn.ConvTranspose1d(filters, 1, 16, 8, bias=False)
        depthwise = lambda rate: nn.Conv1d(width, width, 3, padding=rate, dilation=rate, groups=width)
        inner = lambda rate: [nn.PReLU(), GlobalNorm(width), depthwise(rate), nn.PReLU(), GlobalNorm(width)]
        block = lambda rate: nn.Sequential(nn.Conv1d(filters, width, 1), *inner(rate), nn.Conv1d(width, filters, 1))
        self.blocks = nn.ModuleList(block(rate) for rate in rates)
        self.masks = nn.Conv1d(filters, 2 * filters, 1)

    def forward(self, sound):
        basis = F.relu(self.encoder(sound[:, None]))
        x = basis
        for block in self.blocks:
            x = x + block(x)
        masked = self.masks(x).sigmoid().unflatten(1, (2, -1)) * basis[:, None]
        return self.decoder(masked.flatten(0, 1)).unflatten(0, (-1, 2)).squeeze(2)


@case("conv_tasnet", "cnn", trains=True)
def _conv_tasnet():
    return ConvTasNet(), (torch.randn(2, 400),)


class Translator(nn.Module):
    """GRU to GRU with additive attention over what is no padding (Bahdanau et al. 2015)."""

    def __init__(self, words=64, dim=24):
        super().__init__()
        self.source, self.target = nn.Embedding(words, dim, padding_idx=0), nn.Embedding(words, dim)
        self.forwards, self.backwards = nn.GRUCell(dim, dim), nn.GRUCell(dim, dim)
        self.cell = nn.GRUCell(3 * dim, 2 * dim)
        self.key, self.query, self.score = nn.Linear(2 * dim, dim), nn.Linear(2 * dim, dim, bias=False), nn.Linear(dim, 1, bias=False)
        self.head = nn.Linear(2 * dim, words)

    @staticmethod
    def read(cell, steps, keep):
        h, states = steps[0].new_zeros(steps[0].shape[0], cell.hidden_size), []
        for x, kept in zip(steps, keep):
            h = torch.where(kept[:, None], cell(x, h), h)
            states.append(h)
        return torch.stack(states, 1)

    def forward(self, source, target):
        keep, steps = source.ne(0), self.source(source).unbind(1)
        left = self.read(self.forwards, steps, keep.unbind(1))
        right = self.read(self.backwards, steps[::-1], keep.flip(1).unbind(1)).flip(1)
        memory = torch.cat([left, right], -1)
        keys, h, logits = self.key(memory), memory.mean(1), []
        for word in self.target(target).unbind(1):
            scores = self.score(torch.tanh(keys + self.query(h)[:, None])).squeeze(-1).masked_fill(~keep, -1e9)
            context = torch.bmm(scores.softmax(-1)[:, None], memory).squeeze(1)
            h = self.cell(torch.cat([word, context], -1), h)
            logits.append(self.head(h))
        return torch.stack(logits, 1)


@case("gru_attention", "other", loss=next_token_loss)
def _gru_attention():
    source = ids(64, 4, 7)
    source[1, 5:], source[3, 3:] = 0, 0
    return Translator(), (source, ids(64, 4, 5))


class Tacotron(nn.Module):
    """A decoder that attends where it attended before: location-sensitive attention (Shen et al. 2018), three frames a step."""

    def __init__(self, letters=30, dim=24, bins=10):
        super().__init__()
        self.bins, self.embed = bins, nn.Embedding(letters, dim)
        self.convs = nn.ModuleList(nets.conv_bn_1d(dim, dim, 5) for _ in range(2))
        self.prenet, self.cell = nets.mlp(bins, 16, 16), nn.LSTMCell(16 + dim, dim)
        self.query, self.places, self.key = nn.Linear(dim, 16), nn.Conv1d(2, 16, 7, padding=3, bias=False), nn.Linear(dim, 16)
        self.score, self.frames, self.stop = nn.Linear(16, 1, bias=False), nn.Linear(2 * dim, 3 * bins), nn.Linear(2 * dim, 1)

    def forward(self, text, speech):
        x = self.embed(text).mT
        for conv in self.convs:
            x = conv(x)
        memory = x.mT
        key = self.key(memory)
        h = c = memory.new_zeros(text.shape[0], memory.shape[-1])
        weights = total = memory.new_zeros(text.shape)
        context, frames, stops = h, [], []
        for previous in F.pad(speech, (0, 0, 1, -1)).unbind(1):
            h, c = self.cell(torch.cat([self.prenet(previous), context], -1), (h, c))
            places = self.places(torch.stack([weights, total], 1)).mT
            weights = self.score(torch.tanh(self.query(h)[:, None] + places + key)).squeeze(-1).softmax(-1)
            total = total + weights
            context = torch.einsum("bt,btd->bd", weights, memory)
            y = torch.cat([h, context], -1)
            frames.append(self.frames(y).unflatten(-1, (3, self.bins)))
            stops.append(self.stop(y))
        return torch.cat(frames, 1), torch.cat(stops, 1).sigmoid()


@case("tacotron", "other", trains=True)
def _tacotron():
    text, speech = ids(30, 4, 12), torch.randn(4, 4, 10)
    return nets.calibrate(Tacotron(), text, speech), (text, speech)


class RelativeAttention(nn.Module):
    """Transformer-XL's: content and distance, the latter shifted into place (Dai et al. 2019), over a memory of the segment before."""

    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)
        self.distance = nn.Linear(dim, dim, bias=False)
        self.content_bias, self.distance_bias = (nn.Parameter(torch.randn(heads, dim // heads) * 0.3) for _ in range(2))
        self.register_buffer("rates", 1 / 10000 ** (torch.arange(0, dim, 2) / dim))

    def forward(self, x, memory):
        length, past = x.shape[1], memory.shape[1]
        q, k, v = (t.unflatten(-1, (self.heads, -1)) for t in self.qkv(torch.cat([memory, x], 1)).chunk(3, -1))
        q = q[:, -length:]
        angles = torch.arange(past + length - 1, -1, -1.0)[:, None] * self.rates
        r = self.distance(torch.cat([angles.sin(), angles.cos()], -1)).unflatten(-1, (self.heads, -1))
        content = torch.einsum("bihd,bjhd->bhij", q + self.content_bias, k)
        distance = torch.einsum("bihd,jhd->bhij", q + self.distance_bias, r)
        padded = F.pad(distance, (1, 0)).flatten(2).unflatten(2, (-1, length))
        shifted = padded[:, :, 1:].reshape(distance.shape)
        later = torch.ones(length, past + length, dtype=torch.bool).triu(past + 1)
        weights = ((content + shifted) / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf).softmax(-1)
        return self.out(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))


@case("transformer_xl", "transformer", quick=True, trains=True)
def _transformer_xl():
    return RelativeAttention(), (torch.randn(2, 12, 32), torch.randn(2, 9, 32))


class LinearAttention(nn.Module):
    """Kernel attention by running sums (Katharopoulos et al. 2020), and attention within windows of their neighbours (unfold)."""

    def __init__(self, dim=32, heads=4, window=8):
        super().__init__()
        self.heads, self.window = heads, window
        self.embed, self.qkv, self.out = nn.Embedding(64, dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, 64)

    def forward(self, tokens):
        q, k, v = self.qkv(self.embed(tokens)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        far = self.far(F.elu(q) + 1, F.elu(k) + 1, v)
        near = self.near(q, *(F.pad(t, (0, 0, self.window - 1, 0)) for t in (k, v)))
        return self.out((far + near).transpose(1, 2).flatten(2))

    @staticmethod
    def far(q, k, v):
        states = torch.cumsum(k[..., :, None] * v[..., None, :], 2)
        norm = (q * k.cumsum(2)).sum(-1, keepdim=True)
        return torch.einsum("bhtd,bhtde->bhte", q, states) / norm.clamp(min=1e-6)

    def near(self, q, k, v):
        k, v = (t.unfold(2, self.window, 1) for t in (k, v))
        weights = torch.einsum("bhtd,bhtdw->bhtw", q, k).softmax(-1)
        return torch.einsum("bhtw,bhtdw->bhtd", weights, v)


@case("linear_attention", "transformer", loss=next_token_loss)
def _linear_attention():
    return LinearAttention(), (ids(64, 2, 24),)


class StateSpace(nn.Module):
    """S4D: a diagonal state's impulse response by complex exponentials, convolved by FFT (Gu et al. 2022)."""

    def __init__(self, dim=16, states=8):
        super().__init__()
        self.rate, self.decay = nn.Parameter(torch.rand(dim) * -2 - 2), nn.Parameter(torch.rand(dim, states))
        self.frequency = nn.Parameter(torch.pi * torch.arange(states).repeat(dim, 1))
        self.weight, self.direct = nn.Parameter(torch.randn(dim, states, 2)), nn.Parameter(torch.randn(dim))
        self.head = nn.Linear(dim, dim * 2)

    def forward(self, x):
        length, step = x.shape[-1], self.rate.exp()[:, None]
        pole = step * torch.complex(-self.decay.exp(), self.frequency)
        powers = torch.exp(pole[..., None] * torch.arange(length))
        response = 2 * torch.einsum("dn,dnl->dl", torch.view_as_complex(self.weight) * (pole.exp() - 1) / pole, powers).real
        y = torch.fft.irfft(torch.fft.rfft(x, 2 * length) * torch.fft.rfft(response, 2 * length), 2 * length)[..., :length]
        return F.glu(self.head(F.gelu(y + x * self.direct[:, None]).mT), -1)


@case("state_space", "other", trains=True)
def _state_space():
    return StateSpace(), (torch.randn(2, 16, 20),)


class Encoders(nn.Module):
    """torch.nn's own encoder and decoder layers, with padding and with what comes later masked."""

    def __init__(self, dim=32, heads=4):
        super().__init__()
        how = dict(dim_feedforward=48, dropout=0.0, batch_first=True)
        encoder = nn.TransformerEncoderLayer(dim, heads, activation="gelu", norm_first=True, **how)
        self.encoder = nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoderLayer(dim, heads, **how)

    def forward(self, source, target, padding):
        later = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=target.dtype)
        memory = self.encoder(source, src_key_padding_mask=padding)
        return self.decoder(target, memory, tgt_mask=later, memory_key_padding_mask=padding)


@case("torch_transformer", "other", trains=True)
def _torch_transformer():
    padding = torch.zeros(2, 10, dtype=torch.bool)
    padding[1, 7:] = True
    return Encoders(), (torch.randn(2, 10, 32), torch.randn(2, 6, 32), padding)


class CRF(nn.Module):
    """Emissions, the log partition by a loop over time, and Viterbi's path back (Lample et al. 2016)."""

    def __init__(self, words=50, tags=6, dim=16):
        super().__init__()
        self.embed, self.conv, self.emit = nn.Embedding(words, dim), nn.Conv1d(dim, dim, 3, padding=1), nn.Linear(dim, tags)
        self.moves = nn.Parameter(torch.randn(tags, tags))

    def forward(self, words, tags):
        emissions = self.emit(torch.tanh(self.conv(self.embed(words).mT)).mT)
        total = best = emissions[:, 0]
        back = []
        for emission in emissions[:, 1:].unbind(1):
            total = torch.logsumexp(total[:, :, None] + self.moves, 1) + emission
            best, where = (best[:, :, None] + self.moves).max(1)
            best = best + emission
            back.append(where)
        path = [best.argmax(1)]
        for where in reversed(back):
            path.append(where.gather(1, path[-1][:, None]).squeeze(1))
        score = emissions.gather(2, tags[..., None]).sum((1, 2)) + self.moves[tags[:, :-1], tags[:, 1:]].sum(1)
        return (torch.logsumexp(total, 1) - score).mean(), torch.stack(path[::-1], 1)


@case("crf", "other", loss=lambda out: out[0])
def _crf():
    return CRF(), (ids(50, 3, 9), ids(6, 3, 9))


class MemoryMachine(nn.Module):
    """A neural Turing machine's head: content, gate, shift, sharpening; erases and adds (Graves et al. 2014)."""

    def __init__(self, inputs=6, slots=12, dim=10, hidden=24):
        super().__init__()
        self.cell, self.slots, self.dim = nn.LSTMCell(inputs + dim, hidden), slots, dim
        self.control = nn.Linear(hidden, 3 * dim + 6)
        self.start = nn.Parameter(torch.randn(slots, dim) * 0.3)

    def forward(self, x):
        batch = x.shape[0]
        memory = self.start.expand(batch, -1, -1)
        h = c = x.new_zeros(batch, self.cell.hidden_size)
        weights, read, reads = x.new_full((batch, self.slots), 1 / self.slots), x.new_zeros(batch, self.dim), []
        for step in x.unbind(1):
            h, c = self.cell(torch.cat([step, read], 1), (h, c))
            key, erase, add, scalars = self.control(h).split([self.dim] * 3 + [6], 1)
            strength, gate, sharp = F.softplus(scalars[:, :1]), scalars[:, 1:2].sigmoid(), 1 + F.softplus(scalars[:, 2:3])
            found = (strength * F.cosine_similarity(key[:, None], memory, dim=-1)).softmax(1)
            mixed = gate * found + (1 - gate) * weights
            shifts = scalars[:, 3:].softmax(1)
            weights = sum(shifts[:, i : i + 1] * mixed.roll(i - 1, 1) for i in range(3)).pow(sharp)
            weights = weights / weights.sum(1, keepdim=True)
            memory = memory * (1 - weights[..., None] * erase.sigmoid()[:, None]) + weights[..., None] * add.tanh()[:, None]
            read = torch.einsum("bs,bsd->bd", weights, memory)
            reads.append(read)
        return torch.stack(reads, 1)


@case("turing_machine", "other", trains=True)
def _turing_machine():
    return MemoryMachine(), (torch.randn(3, 5, 6),)
