#!/usr/bin/env python3
"""PyTorch's side of `weft bench`: the same workloads, the same flags, the same JSON lines.

usage: torch_peer.py op     --threads N
       torch_peer.py step   --threads N --model mlp|cnn --global-batch N
       torch_peer.py optim  --threads N --optimizer sgd|adamw --parameters N
       torch_peer.py data   --threads 1 --photographs DIR
       torch_peer.py stream --threads N
each with --json FILE. PyTorch is given its best configuration: channels-last images, fused optimizers; images are
decoded by torchvision, or by Pillow where that is missing. Exit code 3: it has not what the workload needs.
"""

import argparse
import inspect
import io
import json
import math
import pathlib
import random
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def median_seconds(function, rounds, warm_up, budget=20.0):
    """The median of `rounds` timings, or of at least three once `budget` seconds are spent."""
    begin = time.perf_counter()
    for _ in range(warm_up):
        function()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        now = time.perf_counter()
        seconds.append(now - start)
        if len(seconds) >= 3 and now - begin > budget:
            break
    return statistics.median(seconds)


def channels_last(value):
    return value.to(memory_format=torch.channels_last)


def fused(optimizer, parameters, **options):
    """The fused update where this PyTorch has it on the CPU, its fastest otherwise."""
    if "fused" in inspect.signature(optimizer.__init__).parameters:
        try:
            return optimizer(parameters, fused=True, **options)
        except RuntimeError:
            pass  # Older releases know the flag for CUDA alone.
    return optimizer(parameters, **options)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.linear1 = nn.Linear(64 * 7 * 7, 128)
        self.linear2 = nn.Linear(128, 10)

    def forward(self, images):
        hidden = F.max_pool2d(F.relu(self.conv1(images)), 2)
        hidden = F.max_pool2d(F.relu(self.conv2(hidden)), 2)
        return self.linear2(F.relu(self.linear1(hidden.flatten(1))))


def bench_op(emit, _):
    repeats = 1000

    def time_add(left, right):
        def many():
            for _ in range(repeats):
                left + right

        return median_seconds(many, 15, 3) / repeats

    one = torch.ones(1)
    seconds = time_add(one, torch.ones(1))
    emit("add", "f32", seconds, 1 / seconds, "ops/s")
    seconds = time_add(torch.ones(1, requires_grad=True), torch.ones(1))
    emit("add_autograd", "f32", seconds, 1 / seconds, "ops/s")

    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        left = torch.randn(1024, 1024).to(dtype)
        right = torch.randn(1024, 1024).to(dtype)
        seconds = median_seconds(lambda: left @ right, 15, 3)
        emit(f"matmul_1024_{name}", name, seconds, 2 * 1024**3 / seconds / 1e9, "GFLOP/s")

    shape = (16, 256, 56, 56)
    norm = nn.BatchNorm2d(256)
    x = channels_last(torch.randn(shape)).requires_grad_()
    z = channels_last(torch.randn(shape)).requires_grad_()
    gradient = channels_last(torch.randn(shape))

    def forward_backward():
        x.grad = None
        z.grad = None
        F.relu(norm(x) + z).backward(gradient)

    seconds = median_seconds(forward_backward, 7, 2)
    emit("bn_add_relu", "f32", seconds, 16 / seconds, "images/s")


def bench_step(emit, arguments):
    batch = arguments.global_batch
    if arguments.model == "mlp":
        model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
        inputs = torch.randn(batch, 784)
        rounds, warm_up = 300, 30
    else:
        model = channels_last(Cnn())
        inputs = channels_last(torch.randn(batch, 1, 28, 28))
        rounds, warm_up = 15, 3
    targets = torch.randint(0, 10, (batch,))
    optimizer = fused(torch.optim.SGD, model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(inputs), targets).backward()
        optimizer.step()

    seconds = median_seconds(step, rounds, warm_up)
    emit(arguments.model, "f32", seconds, batch / seconds, "images/s")


def bench_optim(emit, arguments):
    tensors = 160
    parameters = [
        torch.randn(arguments.parameters // tensors, requires_grad=True) for _ in range(tensors)
    ]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    if arguments.optimizer == "sgd":
        optimizer = fused(torch.optim.SGD, parameters, lr=0.01, momentum=0.9)
    else:
        optimizer = fused(torch.optim.AdamW, parameters, lr=1e-3)
    seconds = median_seconds(optimizer.step, 5, 2)
    emit(arguments.optimizer, "f32", seconds, arguments.parameters / seconds, "parameters/s")


def random_crop(height, width):
    """(top, left, height, width) of torchvision's RandomResizedCrop, drawn here for either library."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, height - h), random.randint(0, width - w), h, w
    return 0, 0, height, width


def torchvision_image(size):
    """A file's bytes to a normalised tensor: torchvision's tensor path, bytes until the last step."""
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms.v2 import functional as F2

    mean, stddev = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

    def make(data):
        image = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)
        image = F2.resized_crop(image, *random_crop(*image.shape[1:]), [size, size], antialias=True)
        if random.random() < 0.5:
            image = F2.horizontal_flip(image)
        return F2.normalize(F2.to_dtype(image, torch.float32, scale=True), mean, stddev)

    return make


def pillow_image(size):
    import numpy
    from PIL import Image

    mean = numpy.float32([0.485, 0.456, 0.406]) * 255
    scale = 1 / (numpy.float32([0.229, 0.224, 0.225]) * 255)

    def make(data):
        image = Image.open(io.BytesIO(data)).convert("RGB")
        top, left, height, width = random_crop(image.height, image.width)
        image = image.resize((size, size), Image.BILINEAR, box=(left, top, left + width, top + height))
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        return torch.from_numpy((numpy.asarray(image) - mean) * scale)

    return make


def bench_data(emit, arguments):
    files = sorted(pathlib.Path(arguments.photographs or ".").glob("*/*.jpg"))
    if not files:
        print("torch_peer: expected --photographs to name a folder with CLASS/*.jpg", file=sys.stderr)
        sys.exit(3)
    try:
        make = torchvision_image(arguments.image_size)
    except ImportError:
        try:
            make = pillow_image(arguments.image_size)
        except ImportError:
            sys.exit(3)
    random.seed(0)

    def all_files():
        for file in files:
            make(file.read_bytes())

    seconds = median_seconds(all_files, 7, 1) / len(files)
    emit("decode_to_tensor", "f32", seconds, 1 / seconds, "images/s")


def bench_stream(emit, _):
    source = torch.randn(1 << 26)
    target = torch.empty_like(source)
    seconds = median_seconds(lambda: target.copy_(source), 7, 2)
    emit("copy", "f32", seconds, 2 * 4 * source.numel() / seconds / 1e9, "GB/s")


def main():
    benches = {"op": bench_op, "step": bench_step, "optim": bench_optim, "data": bench_data,
               "stream": bench_stream}
    parser = argparse.ArgumentParser(description="PyTorch's side of `weft bench`")
    parser.add_argument("what", choices=benches)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", choices=("mlp", "cnn"), default="mlp")
    parser.add_argument("--global-batch", type=int, default=64)
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    parser.add_argument("--parameters", type=int, default=25_000_000)
    parser.add_argument("--photographs", metavar="DIR")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    out = open(arguments.json, "w") if arguments.json else sys.stdout

    def emit(case, dtype, seconds, rate, unit):
        row = dict(bench=arguments.what, case=case, threads=arguments.threads, workers=1)
        row.update(dtype=dtype, median_seconds=seconds, rate=rate, unit=unit)
        print(json.dumps(row), file=out, flush=True)

    benches[arguments.what](emit, arguments)


if __name__ == "__main__":
    main()
