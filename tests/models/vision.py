"""Networks of images, volumes and points, by hand, small: each for the operators that it has and others have not."""

import torch
import torch.nn.functional as F
from torch import nn

from models import nets
from models.cases import case, class_loss
from models.nets import SqueezeExcite, conv_bn


def _images(*shape):
    return torch.randn(*shape)


def _calibrated(model, *shape):
    """Statistics of 16 images, so that few places don't make a variance near zero."""
    return nets.calibrate(model, torch.randn(16, *shape[1:])), (torch.randn(*shape),)


class VGG(nn.Module):
    """Plain 3x3 convolutions with biases, pooled by max, and a head of three layers (Simonyan & Zisserman 2015)."""

    def __init__(self, widths=(16, 32, 32, 64), classes=10):
        super().__init__()
        layers, cin = [], 3
        for cout in widths:
            layers += [nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
            cin = cout
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3))
        self.head = nets.mlp(cin * 9, 64, 64, classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


@case("vgg", "cnn", quick=True, loss=class_loss)
def _vgg():
    return VGG(), (_images(4, 3, 56, 56),)


@case("densenet", "cnn", trains=True)
def _densenet():
    return _calibrated(nets.DenseNet((2, 2, 2), growth=8, classes=10), 4, 3, 48, 48)


class ResNeXtBlock(nn.Module):
    """32 groups in the middle (Xie et al. 2017), squeeze-excite behind (Hu et al. 2018)."""

    def __init__(self, channels, width, groups):
        super().__init__()
        middle = [conv_bn(width, width, 3, groups=groups), SqueezeExcite(width)]
        self.body = nn.Sequential(conv_bn(channels, width, 1), *middle, conv_bn(width, channels, 1, act=None))

    def forward(self, x):
        return F.relu(x + self.body(x))


@case("resnext_se", "cnn", loss=class_loss)
def _resnext():
    blocks = [ResNeXtBlock(64, 32, 8), ResNeXtBlock(64, 32, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return _calibrated(nn.Sequential(conv_bn(3, 64, 3, 2), nn.AvgPool2d(3, 2, 1, count_include_pad=False), *blocks), 4, 3, 48, 48)


class Fire(nn.Module):
    """SqueezeNet's module (Iandola et al. 2016)."""

    def __init__(self, cin, squeezed, widened):
        super().__init__()
        self.squeeze, self.one = nn.Conv2d(cin, squeezed, 1), nn.Conv2d(squeezed, widened, 1)
        self.three = nn.Conv2d(squeezed, widened, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.squeeze(x), inplace=True)
        return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)


@case("squeezenet", "cnn", loss=class_loss)
def _squeezenet():
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    layers = [nn.Conv2d(3, 32, 3, 2), nn.ReLU(), pool, Fire(32, 8, 16), Fire(32, 8, 32), pool, Fire(64, 16, 32)]
    return nn.Sequential(*layers, nn.Conv2d(64, 10, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), (_images(4, 3, 60, 60),)


class DeepLab(nn.Module):
    """Dilated convolutions, a pyramid of them with an image's mean, bilinear back to size (Chen et al. 2017)."""

    def __init__(self, width=24, classes=7):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, width, 3, 2), conv_bn(width, width, 3, 2))
        self.dilated = nn.ModuleList(nn.Conv2d(width, width, 3, padding=rate, dilation=rate) for rate in (1, 2, 4))
        self.pooled = nn.Conv2d(width, width, 1)
        self.mix, self.head = conv_bn(4 * width, width, 1), nn.Conv2d(width, classes, 1)

    def forward(self, x):
        y = self.stem(x)
        mean = self.pooled(F.adaptive_avg_pool2d(y, 1)).expand(-1, -1, *y.shape[2:])
        y = torch.cat([*(F.relu(conv(y)) for conv in self.dilated), mean], 1)
        return F.interpolate(self.head(self.mix(y)), size=x.shape[2:], mode="bilinear", align_corners=False)


@case("deeplab", "cnn", trains=True)
def _deeplab():
    return _calibrated(DeepLab(), 2, 3, 36, 44)


class SegNet(nn.Module):
    """Pools by max and puts values back where they were (Badrinarayanan et al. 2017)."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 5, 3, padding=1)

    def forward(self, x):
        y, where = F.max_pool2d(F.elu(self.down(x)), 2, return_indices=True)
        return F.log_softmax(self.up(F.max_unpool2d(y, where, 2)), dim=1)


@case("segnet", "other", trains=True)
def _segnet():
    return SegNet(), (_images(2, 3, 24, 20),)


class SuperResolution(nn.Module):
    """Convolutions at low resolution, then channels become pixels (Shi et al. 2016), over the bicubic image."""

    def __init__(self, width=24, factor=3):
        super().__init__()
        self.factor = factor
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 5, padding=2, padding_mode="reflect"), nn.PReLU(width), nn.Conv2d(width, width, 3, padding=1), nn.PReLU(),
            nn.Conv2d(width, 3 * factor**2, 3, padding=1), nn.PixelShuffle(factor),
        )  # fmt: skip

    def forward(self, x):
        return self.body(x) + F.interpolate(x, scale_factor=self.factor, mode="bicubic", align_corners=True)


@case("super_resolution", "cnn", trains=True)
def _super_resolution():
    return SuperResolution(), (_images(2, 3, 14, 18),)


class GAN(nn.Module):
    """DCGAN's generator and a discriminator with spectral norms (Radford et al. 2016; Miyato et al. 2018)."""

    def __init__(self, latent=16, width=16):
        super().__init__()
        up = lambda a, b, *how: [nn.ConvTranspose2d(a, b, 4, *how, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)]
        layers = [*up(latent, 2 * width, 1, 0), *up(2 * width, width, 2, 1), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh()]
        self.generator = nn.Sequential(*layers)
        normed = nn.utils.parametrizations.spectral_norm
        judge = [normed(nn.Conv2d(3, width, 4, 2, 1)), nn.LeakyReLU(0.2, True), normed(nn.Conv2d(width, 1, 4, 2, 1)), nn.InstanceNorm2d(1)]
        self.discriminator = nn.Sequential(*judge, nn.Flatten(), nn.Linear(16, 1))

    def forward(self, noise):
        image = self.generator(noise[:, :, None, None])
        return image, F.softplus(-self.discriminator(image)).mean()


@case("gan", "cnn", trains=True)
def _gan():
    return nets.calibrate(GAN(), torch.randn(16, 16)), (torch.randn(6, 16),)


class VAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.GELU(), nn.Conv2d(16, 16, 3, 2, 1), nn.GELU(), nn.Flatten())
        self.moments = nn.Linear(16 * 49, 2 * latent)
        self.widen = nn.Linear(latent, 16 * 49)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(16, 16, 3, 2, 1, 1), nn.SELU(), nn.ConvTranspose2d(16, 1, 3, 2, 1, 1))

    def forward(self, x, noise):
        mean, log_variance = self.moments(self.encoder(x)).chunk(2, 1)
        code = mean + torch.exp(0.5 * log_variance) * noise
        logits = self.decoder(self.widen(code).unflatten(1, (16, 7, 7)))
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        return logits, F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum((1, 2, 3)).mean() + divergence


@case("vae", "other", quick=True, loss=lambda out: out[1])
def _vae():
    return VAE(), (torch.rand(4, 1, 28, 28), torch.randn(4, 8))


class VectorQuantised(nn.Module):
    """The nearest code of each patch, straight through (van den Oord et al. 2017)."""

    def __init__(self, codes=32, dim=12, patch=4):
        super().__init__()
        self.patch, self.codes = patch, nn.Embedding(codes, dim)
        self.encoder, self.decoder = nets.mlp(3 * patch**2, 32, dim), nn.Linear(dim, 3 * patch**2)

    def forward(self, x):
        y = self.encoder(F.unfold(x, self.patch, stride=self.patch).mT)
        nearest = torch.cdist(y.flatten(0, 1), self.codes.weight).argmin(1)
        share = F.one_hot(nearest, self.codes.num_embeddings).float().mean(0)
        q = self.codes(nearest).view(y.shape)
        loss = F.mse_loss(q, y.detach()) + 0.25 * F.mse_loss(y, q.detach())
        image = F.fold(self.decoder(y + (q - y).detach()).mT, x.shape[2:], self.patch, stride=self.patch)
        return image, nearest, torch.exp(-(share * torch.log(share + 1e-10)).sum()), loss


@case("vq_vae", "other", trains=True)
def _vq_vae():
    return VectorQuantised(), (_images(2, 3, 24, 24),)


class YOLO(nn.Module):
    """Boxes of a grid's cells decoded, the best of them kept, and how much each overlaps the best (Redmon & Farhadi 2018)."""

    def __init__(self, classes=4, anchors=((10.0, 13.0), (16.0, 30.0), (33.0, 23.0))):
        super().__init__()
        self.classes = classes
        self.register_buffer("anchors", torch.tensor(anchors))
        self.body = nn.Sequential(conv_bn(3, 16, 3, 2, act=nn.SiLU), conv_bn(16, 32, 3, 2, act=nn.SiLU))
        self.head = nn.Conv2d(32, len(anchors) * (5 + classes), 1)

    def forward(self, x):
        y = self.head(self.body(x))
        batch, _, rows, columns = y.shape
        y = y.view(batch, len(self.anchors), 5 + self.classes, rows, columns).permute(0, 1, 3, 4, 2)
        ys, xs = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        centre = (y[..., :2].sigmoid() * 2 - 0.5 + torch.stack([xs, ys], -1)) * 4
        size = (y[..., 2:4].sigmoid() * 2) ** 2 * self.anchors[:, None, None]
        scores, label = (y[..., 4:5].sigmoid() * y[..., 5:].sigmoid()).max(-1)
        boxes = torch.cat([centre - size / 2, centre + size / 2], -1).view(batch, -1, 4)
        best, index = scores.flatten(1).topk(10)
        kept = boxes.gather(1, index[..., None].expand(-1, -1, 4)).clamp(0, 4 * columns)
        return best, kept, label.flatten(1).gather(1, index), overlap(kept, kept[:, :1])


def overlap(a, b):
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    area = lambda box: (box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1])
    return shared / (area(a) + area(b) - shared + 1e-6)


@case("yolo", "other", trains=True)
def _yolo():
    return _calibrated(YOLO(), 2, 3, 32, 40)


class SpatialTransformer(nn.Module):
    """An affine grid of the image's own making, and samples of the image there (Jaderberg et al. 2015)."""

    def __init__(self):
        super().__init__()
        self.where = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.MaxPool2d(2), nn.ReLU6(), nn.Flatten(), nn.Linear(8 * 36, 6))
        self.head = nn.Linear(28 * 28, 10)
        self.register_buffer("identity", torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, x):
        theta = (self.identity + 0.3 * self.where(x)).view(-1, 2, 3)
        return self.head(F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False).flatten(1))


@case("spatial_transformer", "other", trains=True)
def _spatial_transformer():
    return SpatialTransformer(), (_images(4, 1, 28, 28),)


class PixelCNN(nn.Module):
    """Convolutions that see only the pixels before (van den Oord et al. 2016)."""

    def __init__(self, width=16):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 5, padding=2) for a, b in ((1, width), (2 * width, width), (2 * width, 8)))
        mask = torch.ones(5, 5)
        mask[2, 3:], mask[3:] = 0, 0
        self.register_buffer("mask", mask)

    def forward(self, x):
        for index, conv in enumerate(self.convs):
            if index > 0:
                x = F.elu(torch.cat([x, -x], 1))  # concatenated ELU
            x = F.conv2d(x, conv.weight * self.mask.to(x.dtype), conv.bias, padding=2)
        return x


@case("pixel_cnn", "cnn", trains=True)
def _pixel_cnn():
    return PixelCNN(), (torch.rand(2, 1, 20, 20),)


@case("conv3d", "cnn", trains=True)
def _conv3d():
    """C3D (Tran et al. 2015): a clip of eight frames."""
    layers = [nn.Conv3d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool3d((1, 2, 2)), nn.Conv3d(8, 16, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AvgPool3d(2), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 5)), (torch.randn(2, 3, 8, 20, 20),)


class PointNet(nn.Module):
    """Points through shared layers, a learned 3x3 transform, the maximum over points (Qi et al. 2017)."""

    def __init__(self, classes=6):
        super().__init__()
        shared = lambda *sizes: [m for a, b in zip(sizes, sizes[1:]) for m in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())]
        self.align, self.matrix = nn.Sequential(*shared(3, 16, 32)), nn.Linear(32, 9)
        self.features = nn.Sequential(*shared(3, 32, 64))
        self.head = nn.Linear(64, classes)

    def forward(self, points):
        matrix = self.matrix(self.align(points).amax(2)).view(-1, 3, 3) + torch.eye(3)
        return self.head(self.features(torch.bmm(matrix, points)).max(2).values), matrix


@case("pointnet", "other", trains=True)
def _pointnet():
    return nets.calibrate(PointNet(), torch.randn(8, 3, 64)), (torch.randn(4, 3, 64),)


class NeRF(nn.Module):
    """Rays sampled, encoded by sines, composited by what is left of the light (Mildenhall et al. 2020)."""

    def __init__(self, octaves=4):
        super().__init__()
        self.register_buffer("rates", 2.0 ** torch.arange(octaves))
        self.body, self.density, self.colour = nets.mlp(3 + 6 * octaves, 48, 48), nn.Linear(48, 1), nn.Linear(48, 3)

    def forward(self, origins, directions, depths):
        depths = depths.sort(-1).values
        points = origins[:, None] + depths[..., None] * directions[:, None]
        angles = (points[..., None] * self.rates).flatten(-2)
        y = F.relu(self.body(torch.cat([points, angles.sin(), angles.cos()], -1)))
        steps = torch.cat([depths.diff(dim=-1), depths.new_full((depths.shape[0], 1), 1.0)], -1)
        opacity = 1 - torch.exp(-F.softplus(self.density(y)).squeeze(-1) * steps)
        left = torch.cumprod(torch.cat([torch.ones_like(opacity[:, :1]), 1 - opacity + 1e-10], -1), -1)[:, :-1]
        weights = opacity * left
        return (weights[..., None] * self.colour(y).sigmoid()).sum(1), (weights * depths).sum(1)


@case("nerf", "other", trains=True)
def _nerf():
    return NeRF(), (torch.randn(32, 3), F.normalize(torch.randn(32, 3), dim=-1), torch.rand(32, 24) * 4)


class FourierMixer(nn.Module):
    """A Fourier neural operator's layer (Li et al. 2021): low frequencies times complex weights."""

    def __init__(self, width=12, modes=5):
        super().__init__()
        self.modes = modes
        self.real, self.imaginary = (nn.Parameter(torch.randn(width, width, modes, modes) / width) for _ in range(2))
        self.stem, self.skip, self.head = nn.Conv2d(3, width, 1), nn.Conv2d(width, width, 1), nn.Conv2d(width, 1, 1)

    def forward(self, x):
        x = self.stem(x)
        spectrum = torch.fft.rfft2(x, norm="ortho")
        low = torch.einsum("bihw,iohw->bohw", spectrum[..., : self.modes, : self.modes], torch.complex(self.real, self.imaginary))
        mixed = torch.zeros_like(spectrum)
        mixed[..., : self.modes, : self.modes] = low
        return self.head(F.gelu(torch.fft.irfft2(mixed, s=x.shape[-2:], norm="ortho") + self.skip(x)))


@case("fourier_mixer", "other", trains=True)
def _fourier_mixer():
    return FourierMixer(), (_images(2, 3, 16, 16),)


class Capsules(nn.Module):
    """Routing by agreement, three rounds (Sabour et al. 2017)."""

    def __init__(self, classes=5, dim=8):
        super().__init__()
        self.primary = nn.Conv2d(1, 4 * dim, 5, 4)
        self.votes = nn.Parameter(torch.randn(classes, 4 * 36, 16, dim) * 0.1)

    @staticmethod
    def squash(x):
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * norm / (1 + norm.square())

    def forward(self, x):
        y = self.squash(self.primary(x).unflatten(1, (4, -1)).movedim(2, -1).flatten(1, 3))
        votes = torch.einsum("kpod,bpd->bkpo", self.votes, y)
        agreement = votes.new_zeros(votes.shape[:3])
        for _ in range(3):
            out = self.squash((agreement.softmax(1)[..., None] * votes).sum(2))
            agreement = agreement + torch.einsum("bkpo,bko->bkp", votes, out)
        return out, torch.linalg.vector_norm(out, dim=-1)


@case("capsules", "other", trains=True)
def _capsules():
    return Capsules(), (_images(2, 1, 28, 28),)


class Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al. 2021)."""

    def __init__(self, tokens=16, dim=32, layers=2):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 8, 8)
        across = lambda: nn.Sequential(nn.Linear(tokens, 24), nn.GELU("tanh"), nn.Linear(24, tokens))
        within = lambda: nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 48), nn.Mish(), nn.Linear(48, dim))
        self.across, self.within = (nn.ModuleList(make() for _ in range(layers)) for make in (across, within))
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(dim, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).mT
        for across, within in zip(self.across, self.within):
            x = x + across(x.mT).mT
            x = x + within(x)
        return self.head(self.norm(x).mean(1))


@case("mlp_mixer", "transformer", quick=True, loss=class_loss)
def _mixer():
    return Mixer(), (_images(4, 3, 32, 32),)
