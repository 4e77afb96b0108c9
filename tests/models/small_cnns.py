"""Four small CNNs with the layers, sizes and initial weights of torchvision's.

ShuffleNetV2 x0.5 (Ma et al. 2018), GoogLeNet without its auxiliary heads (Szegedy et al. 2014),
MNASNet 0.5 (Tan et al. 2018), MobileNetV2 (Sandler et al. 2018). Dropout is left out: training
steps are compared.
"""

import torch
from torch import nn

from models.nets import conv_bn


class ShuffleUnit(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.stride, half = stride, cout // 2
        self.shortcut = nn.Identity()
        if stride > 1:
            depthwise = conv_bn(cin, cin, 3, stride, groups=cin, act=None)
            self.shortcut = nn.Sequential(depthwise, conv_bn(cin, half, 1))
        self.body = nn.Sequential(
            conv_bn(cin if stride > 1 else half, half, 1),
            conv_bn(half, half, 3, stride, groups=half, act=None),
            conv_bn(half, half, 1),
        )

    def forward(self, x):
        kept, x = x.chunk(2, dim=1) if self.stride == 1 else (x, x)
        y = torch.cat([self.shortcut(kept), self.body(x)], dim=1)
        return y.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)  # shuffles the two halves


class ShuffleNetV2(nn.Module):
    def __init__(self, widths=(24, 48, 96, 192, 1024), classes=1000):
        super().__init__()
        layers = [conv_bn(3, widths[0], 3, 2), nn.MaxPool2d(3, 2, 1)]
        for cin, cout, count in zip(widths, widths[1:], (4, 8, 4)):
            layers.append(ShuffleUnit(cin, cout, 2))
            layers += [ShuffleUnit(cout, cout, 1) for _ in range(count - 1)]
        self.features = nn.Sequential(*layers, conv_bn(widths[3], widths[4], 1))
        self.head = nn.Linear(widths[4], classes)

    def forward(self, x):
        return self.head(self.features(x).mean([2, 3]))


class Inception(nn.Module):
    def __init__(self, cin, one, three_in, three, five_in, five, pooled):
        super().__init__()
        self.branches = nn.ModuleList([
            _google(cin, one, 1),
            nn.Sequential(_google(cin, three_in, 1), _google(three_in, three, 3)),
            nn.Sequential(_google(cin, five_in, 1), _google(five_in, five, 3)),  # 3: torchvision's
            nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), _google(cin, pooled, 1)),
        ])  # fmt: skip

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _google(cin, cout, kernel, stride=1):
    block = conv_bn(cin, cout, kernel, stride)
    block[1].eps = 1e-3
    return block


class GoogLeNet(nn.Module):
    ROWS = (
        (192, 64, 96, 128, 16, 32, 32), (256, 128, 128, 192, 32, 96, 64), 3,
        (480, 192, 96, 208, 16, 48, 64), (512, 160, 112, 224, 24, 64, 64), (512, 128, 128, 256, 24, 64, 64),
        (512, 112, 144, 288, 32, 64, 64), (528, 256, 160, 320, 32, 128, 128), 2,
        (832, 256, 160, 320, 32, 128, 128), (832, 384, 192, 384, 48, 128, 128),
    )  # fmt: skip

    def __init__(self, classes=1000):
        super().__init__()
        pool = lambda size: nn.MaxPool2d(size, 2, ceil_mode=True)
        layers = [_google(3, 64, 7, 2), pool(3), _google(64, 64, 1), _google(64, 192, 3), pool(3)]
        layers += [pool(row) if isinstance(row, int) else Inception(*row) for row in self.ROWS]
        self.features, self.head = nn.Sequential(*layers), nn.Linear(1024, classes)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.01, a=-2, b=2)

    def forward(self, x):
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(self.features(x), 1), 1))


class Bottleneck(nn.Module):
    """An inverted residual: widened, depthwise, projected."""

    def __init__(self, cin, cout, kernel, stride, widening, act):
        super().__init__()
        hidden = cin * widening
        layers = [conv_bn(cin, hidden, 1, act=act)] if widening > 1 else []
        layers.append(conv_bn(hidden, hidden, kernel, stride, groups=hidden, act=act))
        self.body = nn.Sequential(*layers, conv_bn(hidden, cout, 1, act=None))
        self.residual = stride == 1 and cin == cout

    def forward(self, x):
        return x + self.body(x) if self.residual else self.body(x)


def _bottlenecks(cin, rows, act):
    """Rows of kernel, widening, channels, count and first stride."""
    layers = []
    for kernel, widening, cout, count, stride in rows:
        for index in range(count):
            layers.append(Bottleneck(cin, cout, kernel, stride if index == 0 else 1, widening, act))
            cin = cout
    return layers


class Classifier(nn.Module):
    def __init__(self, layers, channels, classes=1000):
        super().__init__()
        self.features, self.head = nn.Sequential(*layers), nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.head(self.features(x).mean([2, 3]))


def mobilenet_v2():
    rows = (
        (3, 1, 16, 1, 1), (3, 6, 24, 2, 2), (3, 6, 32, 3, 2), (3, 6, 64, 4, 2),
        (3, 6, 96, 3, 1), (3, 6, 160, 3, 2), (3, 6, 320, 1, 1),
    )  # fmt: skip
    layers = [conv_bn(3, 32, 3, 2, act=nn.ReLU6), *_bottlenecks(32, rows, nn.ReLU6)]
    return Classifier([*layers, conv_bn(320, 1280, 1, act=nn.ReLU6)], 1280)


def mnasnet_half():
    """Its running statistics move by 1 - 0.9997 a step."""
    stem = [conv_bn(3, 16, 3, 2), conv_bn(16, 16, 3, groups=16), conv_bn(16, 8, 1, act=None)]
    rows = (
        (3, 3, 16, 3, 2), (5, 3, 24, 3, 2), (5, 6, 40, 3, 2),
        (3, 6, 48, 2, 1), (5, 6, 96, 4, 2), (3, 6, 160, 1, 1),
    )  # fmt: skip
    model = Classifier([*stem, *_bottlenecks(8, rows, nn.ReLU), conv_bn(160, 1280, 1)], 1280)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1 - 0.9997
    return model
