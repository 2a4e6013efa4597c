#!/usr/bin/env python3
"""Writes resnet.safetensors: the first losses of PyTorch training residual networks.

usage: make_resnet.py [OUT]      needs torch, numpy and safetensors

The networks are torchvision's, written again with its names, and ResNet-20 for small images (option A). Weights
and batches come from an integer hash that resnet_golden_test.cpp computes alike, so that only the losses need to
be stored: a tensor NETWORK for each, after the names and sizes of its parameters and buffers as metadata.
"""
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

STEPS, BATCH, CLASSES = 20, 8, 10
torch.set_num_threads(1)


def noise(salt, count):
    """count numbers in [-0.5, 0.5), exact in f32: a 32-bit hash of (salt, index)."""
    h = np.arange(count, dtype=np.uint64) + np.uint64(salt) * np.uint64(0x9E3779B9)
    h &= np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h ^= h >> np.uint64(shift)
        h = (h * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(16)
    return torch.from_numpy(((h >> np.uint64(8)).astype(np.float64) / 2**24 - 0.5).astype(np.float32))


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
    def __init__(self, blocks, bottleneck, small):
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
        self.fc = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if not self.small:
            x = F.max_pool2d(x, 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def fill(model):
    """Weights of the variance of He's initialiser, gains around 1, biases around 0."""
    for salt, (name, parameter) in enumerate(sorted(model.named_parameters())):
        values = noise(1000 + salt, parameter.numel())
        if parameter.dim() == 4:
            fan_out = parameter.shape[0] * parameter.shape[2] * parameter.shape[3]
            values = values * np.float32((24 / fan_out) ** 0.5)
        elif parameter.dim() == 2:
            values = values * np.float32(2 / parameter.shape[1] ** 0.5)
        else:
            values = values * np.float32(0.2) + (1 if name.endswith("weight") else 0)
        with torch.no_grad():
            parameter.copy_(values.reshape(parameter.shape))


def batch(step, side):
    """Images of ten classes under noise."""
    labels = torch.arange(BATCH) * (7 if step % 2 else 3) % CLASSES
    size = 3 * side * side
    classes = noise(7, CLASSES * size).reshape(CLASSES, size)
    images = 2 * classes[labels] + 2 * noise(10000 + step, BATCH * size).reshape(BATCH, size)
    return images.reshape(BATCH, 3, side, side), labels


def train(model, side):
    # A rate at which rounding errors of 1e-7 do not grow past 1e-3 within 20 steps.
    optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9, weight_decay=1e-4)
    losses = []
    for step in range(STEPS):
        images, labels = batch(step, side)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


results, metadata = {}, {"made_by": "tests/golden/make_resnet.py", "torch": torch.__version__.split("+")[0]}
for name, blocks, bottleneck, small, side in (("resnet18", (2, 2, 2, 2), False, False, 48),
                                              ("resnet50", (3, 4, 6, 3), True, False, 48),
                                              ("resnet20", (3, 3, 3), False, True, 32)):
    network = ResNet(blocks, bottleneck, small)
    metadata[name] = " ".join(f"{key}:{value.numel()}" for key, value in network.state_dict().items())
    fill(network)
    results[name] = train(network, side)
    print(name, results[name].tolist())
out = sys.argv[1] if len(sys.argv) > 1 else __file__.replace("make_resnet.py", "resnet.safetensors")
save_file(results, out, metadata=metadata)
