"""Residual networks in PyTorch with torchvision's names, and ResNet-20 for small images with padded shortcuts (He et al.
2016, option A): for golden values and as the benchmarks' peer."""
import torch.nn as nn
import torch.nn.functional as F

# Blocks of each stage, bottlenecks or not, for small images or not.
PLANS = {
    "resnet18": ((2, 2, 2, 2), False, False),
    "resnet50": ((3, 4, 6, 3), True, False),
    "resnet20": ((3, 3, 3), False, True),
}


def convolution(inside, outside, kernel, stride=1):
    return nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inside, width, stride, bottleneck, padded):
        super().__init__()
        outside = 4 * width if bottleneck else width
        if bottleneck:
            self.conv1, self.bn1 = convolution(inside, width, 1), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
            self.conv3, self.bn3 = convolution(width, outside, 1), nn.BatchNorm2d(outside)
        else:
            self.conv1, self.bn1 = convolution(inside, width, 3, stride), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = convolution(width, width, 3), nn.BatchNorm2d(width)
        self.bottleneck, self.stride, self.more = bottleneck, stride, outside - inside
        self.downsample = None
        if (stride != 1 or inside != outside) and not padded:
            self.downsample = nn.Sequential(convolution(inside, outside, 1, stride), nn.BatchNorm2d(outside))

    def forward(self, x):
        shortcut = x
        if self.downsample is not None:
            shortcut = self.downsample(x)
        elif self.more or self.stride != 1:
            half = self.more // 2
            shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.more - half))
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.bottleneck:
            y = self.bn3(self.conv3(F.relu(y)))
        return F.relu(y + shortcut)


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck, small, classes):
        super().__init__()
        self.small = small
        channels = width = 16 if small else 64
        self.conv1 = convolution(3, width, 3) if small else convolution(3, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        for stage, count in enumerate(blocks):
            layer = []
            for block in range(count):
                layer.append(Block(channels, width, 2 if stage and not block else 1, bottleneck, small))
                channels = 4 * width if bottleneck else width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
            width *= 2
        self.stages = len(blocks)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if not self.small:
            x = F.max_pool2d(x, 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def resnet(name, classes):
    return ResNet(*PLANS[name], classes)
