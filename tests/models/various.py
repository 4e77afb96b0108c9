"""Networks of tables, graphs and metrics, by hand, small."""

import torch
import torch.nn.functional as F
from torch import nn

from models import nets
from models.cases import case, ids


@case("graph_convolutions", "other", trains=True)
def _gcn():
    return nets.GCN(), (torch.randn(50, 64), ids(50, 2, 200), torch.rand(200))


class GAT(nn.Module):
    """Attention over a node's incoming edges: a softmax by scatters (Velickovic et al. 2018)."""

    def __init__(self, inputs=12, dim=8, heads=3):
        super().__init__()
        self.heads, self.project = heads, nn.Linear(inputs, heads * dim, bias=False)
        self.source, self.target = nn.Parameter(torch.randn(heads, dim)), nn.Parameter(torch.randn(heads, dim))

    def forward(self, x, edges):
        nodes, y = x.shape[0], self.project(x).unflatten(1, (self.heads, -1))
        a, b = edges
        scores = F.leaky_relu((y * self.source).sum(-1)[a] + (y * self.target).sum(-1)[b], 0.2)
        index = b[:, None].expand_as(scores)
        top = scores.new_full((nodes, self.heads), -torch.inf).scatter_reduce(0, index, scores, "amax")
        weights = torch.exp(scores - top[b])
        weights = weights / scores.new_zeros(nodes, self.heads).scatter_add(0, index, weights)[b]
        return torch.zeros_like(y).index_add(0, b, weights[..., None] * y[a]).flatten(1)


@case("gat", "other", quick=True, trains=True)
def _gat():
    loops = torch.arange(30).repeat(2, 1)
    return GAT(), (torch.randn(30, 12), torch.cat([ids(30, 2, 80), loops], 1))


class DeepFM(nn.Module):
    """Factorisation machine and a deep net on the same embeddings (Guo et al. 2017), trained on log loss."""

    def __init__(self, fields=6, rows=40, dim=8):
        super().__init__()
        self.first, self.embed = nn.EmbeddingBag(fields * rows, 1, mode="sum"), nn.Embedding(fields * rows, dim)
        self.deep = nets.mlp(fields * dim, 32, 16, 1)
        self.register_buffer("offsets", torch.arange(fields) * rows)

    def forward(self, features, clicked):
        features = features + self.offsets
        e = self.embed(features)
        pairs = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1, keepdim=True)
        logit = (self.first(features) + pairs + self.deep(e.flatten(1))).squeeze(1)
        return logit.sigmoid(), F.binary_cross_entropy_with_logits(logit, clicked)


@case("deepfm", "other", loss=lambda out: out[1])
def _deepfm():
    return DeepFM(), (ids(40, 32, 6), torch.randint(0, 2, (32,)).float())


class Bags(nn.Module):
    """Bags of unequal sizes: means, maxima, weighted sums; a cross network over them (Wang et al. 2017)."""

    def __init__(self, rows=60, dim=8):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, dim, mode=mode) for mode in ("mean", "max", "sum"))
        self.crosses = nn.ModuleList(nn.Linear(3 * dim, 3 * dim) for _ in range(2))

    def forward(self, words, offsets, weights):
        mean, top, total = self.bags
        x = start = torch.cat([mean(words, offsets), top(words, offsets), total(words, offsets, per_sample_weights=weights)], 1)
        for cross in self.crosses:
            x = torch.addcmul(x, start, cross(x))
        return x


@case("bags", "other", trains=True)
def _bags():
    return Bags(), (ids(60, 20), torch.tensor([0, 3, 4, 11]), torch.rand(20))


class Metrics(nn.Module):
    """Cosine, triplet and contrastive losses of a siamese net; hard negatives by sorted distances."""

    def __init__(self, inputs=16, dim=8):
        super().__init__()
        self.net, self.scale = nn.Sequential(nn.Linear(inputs, 32), nn.Softsign(), nn.Linear(32, dim)), nn.Parameter(torch.tensor(2.0))

    def forward(self, a, b, label):
        x, y = F.normalize(self.net(a)), F.normalize(self.net(b))
        logits = x @ y.mT * self.scale.exp()
        both = (F.cross_entropy(logits, label) + F.cross_entropy(logits.mT, label)) / 2
        apart = torch.cdist(x, y) + torch.eye(len(x)) * 1e3
        far = y[apart.argsort(1)[:, 0]]
        triplet = F.triplet_margin_loss(x, y, far, margin=0.5)
        cosine = F.cosine_embedding_loss(x, far, label.remainder(2).mul(2).sub(1))
        robust = F.smooth_l1_loss(x, y, beta=0.1) + F.huber_loss(x, far) + F.hinge_embedding_loss(logits, logits.sign())
        return both + triplet + cosine + robust, F.pairwise_distance(x, y, p=1.0)


@case("metric_losses", "other", loss=lambda out: out[0])
def _metrics():
    return Metrics(), (torch.randn(12, 16), torch.randn(12, 16), torch.arange(12))


class MixtureDensity(nn.Module):
    """Normals mixed by a net of the input (Bishop 1994); its loss and its mean, and a normalising flow's step (Dinh et al. 2017)."""

    def __init__(self, inputs=5, outputs=2, components=4):
        super().__init__()
        self.shape = (components, outputs)
        self.net = nn.Sequential(nn.Linear(inputs, 24), nn.Softplus(), nn.Linear(24, components * (2 * outputs + 1)))
        self.flow = nn.Sequential(nn.Linear(outputs // 2, 16), nn.Hardtanh(), nn.Linear(16, outputs))

    def forward(self, x, y):
        count = self.shape[0] * self.shape[1]
        mix, mean, spread = self.net(x).split([self.shape[0], count, count], 1)
        mean, spread = mean.unflatten(1, self.shape), F.softplus(spread).unflatten(1, self.shape) + 1e-2
        kept, moved = y.chunk(2, 1)
        scale, shift = self.flow(kept).chunk(2, 1)
        y = torch.cat([kept, moved * scale.tanh().exp() + shift], 1)
        share = F.log_softmax(mix, 1)
        density = torch.distributions.Normal(mean, spread, validate_args=False).log_prob(y[:, None]).sum(2)
        loss = -(torch.logsumexp(share + density, 1) + scale.tanh().sum(1)).mean()
        return loss, (share.exp()[..., None] * mean).sum(1), torch.special.erf((y[:, None] - mean) / spread)


@case("mixture_density", "other", loss=lambda out: out[0])
def _mixture_density():
    return MixtureDensity(), (torch.randn(16, 5), torch.randn(16, 2))


class NeuralODE(nn.Module):
    """Four steps of Runge-Kutta (Chen et al. 2018), with how far a lower order would be off."""

    def __init__(self, dim=12):
        super().__init__()
        self.field = nn.Sequential(nn.Linear(dim + 1, 32), nn.Tanh(), nn.Linear(32, dim))

    def slope(self, t, x):
        return self.field(torch.cat([x, t.expand(x.shape[0], 1)], 1))

    def forward(self, x, times):
        path, off = [x], []
        for begin, end in zip(times, times[1:]):
            step, half = end - begin, (begin + end) / 2
            a = self.slope(begin, x)
            b = self.slope(half, x + step / 2 * a)
            c = self.slope(half, x + step / 2 * b)
            d = self.slope(end, torch.lerp(x, x + c, step))
            off.append(torch.linalg.vector_norm(step * (a - d), ord=torch.inf, dim=1))
            x = torch.addcmul(x, step / 6, a + 2 * b + 2 * c + d)
            path.append(x)
        return torch.stack(path), torch.stack(off)


@case("neural_ode", "other", quick=True, trains=True)
def _neural_ode():
    return NeuralODE(), (torch.randn(6, 12), torch.linspace(0, 1, 5))


class Boltzmann(nn.Module):
    """A restricted Boltzmann machine: free energies, one step of mean field, signs of a Hopfield net."""

    def __init__(self, visible=20, hidden=12):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden, visible) * 0.3)
        self.visible, self.hidden = nn.Parameter(torch.randn(visible) * 0.1), nn.Parameter(torch.randn(hidden) * 0.1)

    def energy(self, v):
        return -v @ self.visible - F.softplus(F.linear(v, self.weight, self.hidden)).sum(1)

    def forward(self, v, threshold):
        h = torch.sigmoid(F.linear(v, self.weight, self.hidden))
        sampled = (h > threshold).to(v.dtype)
        again = torch.sigmoid(F.linear(sampled, self.weight.mT, self.visible))
        state = torch.sign(2 * v - 1)
        recalled = torch.sign(state @ (state.mT @ state).fill_diagonal_(0)) if v.shape[0] == v.shape[1] else state
        return (self.energy(v) - self.energy(again)).mean(), again, recalled


@case("boltzmann", "other", loss=lambda out: out[0].square())
def _boltzmann():
    return Boltzmann(), ((torch.rand(16, 20) > 0.5).float(), torch.rand(16, 12))


@case("mixture_of_experts", "other", trains=True)
def _mixture_of_experts():
    return nets.MixtureOfExperts(experts=4, dim=32, hidden=48, capacity=10), (torch.randn(16, 32),)


class Forest(nn.Module):
    """Soft decision trees: products of gates along paths (Kontschieder et al. 2015), features cut by learned quantiles, ranks of leaves."""

    def __init__(self, inputs=10, depth=3, trees=4, classes=3):
        super().__init__()
        self.depth, self.gates = depth, nn.Parameter(torch.randn(trees, 2**depth - 1, inputs))
        self.leaves, self.cuts = nn.Parameter(torch.randn(trees, 2**depth, classes)), nn.Parameter(torch.randn(inputs, 4))

    def forward(self, x):
        cuts = self.cuts.sort(1).values
        bins = torch.searchsorted(cuts.detach(), x.mT.contiguous()).mT
        x = torch.where(bins % 2 == 0, x, torch.fmod(x, 0.7)) + torch.floor(x) * 0.1 - torch.ceil(x).clamp(-1, 1) * 0.1
        right = torch.sigmoid(torch.einsum("bi,tni->btn", x, self.gates))
        arrive = right.new_ones(*right.shape[:2], 1)
        for level in range(self.depth):
            gate = right[..., 2**level - 1 : 2 ** (level + 1) - 1]
            arrive = (arrive[..., None] * torch.stack([1 - gate, gate], -1)).flatten(2)
        votes = torch.einsum("btl,tlc->bc", arrive, self.leaves.softmax(-1)) / len(self.leaves)
        counts = torch.histc(arrive.argmax(-1).float(), bins=8, min=0, max=7)
        return votes.log(), counts, torch.any(bins > 3, dim=1) & torch.all(bins >= 0, dim=1), torch.bincount(bins[:, 0], minlength=5)


@case("decision_forest", "other", trains=True)
def _forest():
    return Forest(), (torch.randn(12, 10) * 1.5,)


class GaussianProcess(nn.Module):
    """A posterior mean and variance by a Cholesky factor, and the evidence (Rasmussen & Williams 2006, algorithm 2.1)."""

    def __init__(self, dim=3):
        super().__init__()
        self.scales, self.noise = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.tensor(-1.0))

    def kernel(self, a, b):
        return torch.exp(-0.5 * (a / self.scales.exp())[:, None].sub(b / self.scales.exp()).square().sum(-1))

    def forward(self, x, y, new):
        factor = torch.linalg.cholesky(self.kernel(x, x) + torch.eye(len(x)) * self.noise.exp())
        weights = torch.cholesky_solve(y[:, None], factor)
        cross = self.kernel(x, new)
        half = torch.linalg.solve_triangular(factor, cross, upper=False)
        evidence = -0.5 * (y[:, None] * weights).sum() - factor.diagonal().log().sum()
        return (cross.mT @ weights).squeeze(1), 1 - half.square().sum(0), evidence


@case("gaussian_process", "other", trains=True)
def _gaussian_process():
    return GaussianProcess(), (torch.randn(20, 3), torch.randn(20), torch.randn(8, 3))
