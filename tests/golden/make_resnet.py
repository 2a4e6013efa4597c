#!/usr/bin/env python3
"""Writes resnet.safetensors: the first losses of PyTorch training residual networks.

usage: make_resnet.py [OUT]      needs torch, numpy and safetensors

The networks are torchvision's, written again with its names, and ResNet-20 for small images (option A). Weights
and batches come from an integer hash that resnet_golden_test.cpp computes alike, so that only the losses need to
be stored: a tensor NETWORK for each, in f64 NETWORK_f64, and the names and sizes of its parameters and buffers as
metadata.
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F
from hash_noise import noise
from safetensors.torch import save_file
from torch_resnet import resnet

STEPS, F64_STEPS, BATCH, CLASSES = 20, 3, 8, 10
torch.set_num_threads(1)


def fill(model):
    """Weights of the variance of He's initialiser, biases around 0, gains around 1, but for an eighth as the last of
    each block: with 1 PyTorch's own losses in f32 and in f64 part by a tenth within 20 steps of ResNet-50."""
    last = ("bn3.weight" if any("bn3" in name for name, _ in model.named_parameters()) else "bn2.weight")
    for salt, (name, parameter) in enumerate(sorted(model.named_parameters())):
        values = noise(1000 + salt, parameter.numel())
        if parameter.dim() == 4:
            fan_out = parameter.shape[0] * parameter.shape[2] * parameter.shape[3]
            values = values * np.float32((24 / fan_out) ** 0.5)
        elif parameter.dim() == 2:
            values = values * np.float32(2 / parameter.shape[1] ** 0.5)
        else:
            values = values * np.float32(0.2) + (1 if name.endswith("weight") else 0)
            values = values * np.float32(0.125 if name.endswith(last) else 1)
        with torch.no_grad():
            parameter.copy_(values.reshape(parameter.shape))


def batch(step, side):
    """Images of ten classes under noise."""
    labels = torch.arange(BATCH) * (7 if step % 2 else 3) % CLASSES
    size = 3 * side * side
    classes = noise(7, CLASSES * size).reshape(CLASSES, size)
    images = 2 * classes[labels] + 2 * noise(10000 + step, BATCH * size).reshape(BATCH, size)
    return images.reshape(BATCH, 3, side, side), labels


def train(model, side, lr, steps):
    dtype = model.fc.weight.dtype
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=1e-4)
    losses = []
    for step in range(steps):
        images, labels = batch(step, side)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images.to(dtype)), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=dtype)


results, metadata = {}, {"made_by": "tests/golden/make_resnet.py", "torch": torch.__version__.split("+")[0]}
# Such networks amplify rounding errors, since ReLUs and poolings near a border turn one way or the other. In f32 the
# rates keep 1e-7 from growing past 1e-3 within 20 steps; a few steps in f64, at a usual rate, show the rest.
for name, side, lr in (("resnet18", 48, 1e-4), ("resnet50", 48, 1e-4), ("resnet20", 32, 1e-3)):
    network = resnet(name, CLASSES)
    metadata[name] = " ".join(f"{key}:{value.numel()}" for key, value in network.state_dict().items())
    fill(network)
    results[name] = train(network, side, lr, STEPS)
    network = resnet(name, CLASSES)
    fill(network)
    results[name + "_f64"] = train(network.double(), 32, 0.05, F64_STEPS)
    print(name, results[name].tolist(), results[name + "_f64"].tolist(), flush=True)
out = sys.argv[1] if len(sys.argv) > 1 else __file__.replace("make_resnet.py", "resnet.safetensors")
save_file(results, out, metadata=metadata)
