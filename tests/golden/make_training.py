#!/usr/bin/env python3
"""Writes training.safetensors: the first losses of PyTorch training the mnist models and a small gpt.

usage: make_training.py [OUT]      needs torch, numpy and safetensors

Weights and batches come from an integer hash that training_golden_test.cpp computes alike, so that only the
losses need to be stored: a tensor MODEL_OPTIMIZER for each pair.
"""
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from hash_noise import noise
from safetensors.torch import save_file

STEPS, BATCH = 100, 32
GPT_STEPS, GPT_BATCH, VOCABULARY, CONTEXT = 60, 8, 19, 12
torch.set_num_threads(1)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(3136, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def fill(model):
    for salt, (name, parameter) in enumerate(sorted(model.named_parameters())):
        fan_in = parameter[0].numel() if parameter.dim() > 1 else 1
        scale = 2 / fan_in**0.5 if parameter.dim() > 1 else 0.1
        with torch.no_grad():
            parameter.copy_((noise(1000 + salt, parameter.numel()) * np.float32(scale)).reshape(parameter.shape))


def batch(step):
    """Images of ten blurred classes under noise."""
    labels = torch.arange(BATCH) * 7 % 10 if step % 2 else torch.arange(BATCH) * 3 % 10
    classes = noise(7, 10 * 784).reshape(10, 784)
    images = classes[labels] + 4 * noise(10000 + step, BATCH * 784).reshape(BATCH, 784)
    return images.reshape(BATCH, 1, 28, 28), labels


def train(model, optimizer):
    losses = []
    for step in range(STEPS):
        images, labels = batch(step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width)})
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.attention["qkv"](self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.attention["out"](seen)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 24)
        self.positions = nn.Embedding(CONTEXT, 24)
        self.blocks = nn.ModuleList(Block(24, 3) for _ in range(2))
        self.norm = nn.LayerNorm(24)
        self.head = nn.Linear(24, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def sentences(step):
    """Runs of numbers that rise by 1, 2 or 3, with a few slips."""
    draws = noise(20000 + step, GPT_BATCH * (CONTEXT + 2)).reshape(GPT_BATCH, CONTEXT + 2) + 0.5
    start, stride = (draws[:, :1] * VOCABULARY).long(), (draws[:, 1:2] * 3).long() + 1
    ids = start + stride * torch.arange(CONTEXT + 1)
    ids = torch.where(torch.cat([draws[:, 1:2], draws[:, 2:]], 1) < 0.05, 3, ids) % VOCABULARY
    return ids[:, :-1], ids[:, 1:]


def train_gpt(tied):
    model = Gpt(tied)
    fill(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith(".weight"):
                parameter += 1
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1)
    losses = []
    for step in range(GPT_STEPS):
        ids, targets = sentences(step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


results = {}
# The rates keep the runs out of the regime where rounding errors of 1e-7 grow past 1e-4 within 100 steps.
for name, make, rates in (("mlp", Mlp, (0.02, 1e-3)), ("cnn", Cnn, (0.005, 5e-5))):
    for kind, rule in (("sgd", lambda p: torch.optim.SGD(p, rates[0], momentum=0.9, weight_decay=1e-4)),
                       ("adamw", lambda p: torch.optim.AdamW(p, rates[1], weight_decay=0.01))):
        model = make()
        fill(model)
        results[f"{name}_{kind}"] = train(model, rule(model.parameters()))
        print(name, kind, results[f"{name}_{kind}"][[0, 1, 10, 50, 99]].tolist())
for name, tied in (("gpt_tied", True), ("gpt_untied", False)):
    results[name] = train_gpt(tied)
    print(name, results[name][[0, 1, 10, 30, 59]].tolist())
out = sys.argv[1] if len(sys.argv) > 1 else __file__.replace("make_training.py", "training.safetensors")
save_file(results, out, metadata={"made_by": "tests/golden/make_training.py", "torch": torch.__version__.split("+")[0]})
