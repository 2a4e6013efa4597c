#!/usr/bin/env python3
"""PyTorch's side of `weft bench`: the same workloads, the same flags, the same JSON lines.

usage: torch_peer.py op     --threads N [--case NAME]
       torch_peer.py step   --threads N --model mlp|cnn|resnet18|resnet20|resnet50 --global-batch N [--dtype bf16]
       torch_peer.py optim  --threads N --optimizer sgd|adamw --parameters N
       torch_peer.py data   --threads 1 --photographs DIR
       torch_peer.py stream --threads N
each with --json FILE. PyTorch is given its best configuration: channels-last images, fused optimizers; images are
decoded by torchvision, or by Pillow where that is missing; residual networks run eagerly and compiled, of which the
faster counts, and in bf16 by autocast. Exit code 3: it has not what the workload needs.
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
    """The median of `rounds` timings, or of at least three once `budget` seconds are spent; of one where a single call
    takes as long as that when warm (bf16 convolutions, on processors without bf16)."""
    begin = last = time.perf_counter()
    for _ in range(warm_up):
        last = time.perf_counter()
        function()
    slow = time.perf_counter() - last > budget
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        now = time.perf_counter()
        seconds.append(now - start)
        if len(seconds) >= (1 if slow else 3) and now - begin > budget:
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


def time_add(left, right):
    repeats = 1000

    def many():
        for _ in range(repeats):
            left + right

    return median_seconds(many, 15, 3) / repeats


def bench_add(emit, name, autograd):
    seconds = time_add(torch.ones(1, requires_grad=autograd), torch.ones(1))
    emit(name, "f32", seconds, 1 / seconds, "ops/s")


def bench_matmul(emit, dtype, name):
    left = torch.randn(1024, 1024).to(dtype)
    right = torch.randn(1024, 1024).to(dtype)
    seconds = median_seconds(lambda: left @ right, 15, 3)
    emit(f"matmul_1024_{name}", name, seconds, 2 * 1024**3 / seconds / 1e9, "GFLOP/s")


def bench_bn_add_relu(emit, dtype, name):
    """BatchNorm, addition and ReLU, the last two in place as in torchvision; channels-last."""
    shape = (16, 256, 56, 56)
    norm = nn.BatchNorm2d(256)
    x = channels_last(torch.randn(shape).to(dtype)).requires_grad_()
    z = channels_last(torch.randn(shape).to(dtype)).requires_grad_()
    gradient = channels_last(torch.randn(shape).to(dtype))

    def forward_backward():
        x.grad = None
        z.grad = None
        norm.zero_grad(set_to_none=True)
        out = norm(x)
        out += z
        F.relu(out, inplace=True).backward(gradient)

    seconds = median_seconds(forward_backward, 7, 2)
    emit("bn_add_relu", name, seconds, 10 * x.numel() * x.element_size() / seconds / 1e9, "GB/s")


def bench_op(emit, arguments):
    cases = [
        ("add", lambda: bench_add(emit, "add", False)),
        ("add_autograd", lambda: bench_add(emit, "add_autograd", True)),
        ("matmul_1024_f32", lambda: bench_matmul(emit, torch.float32, "f32")),
        ("matmul_1024_bf16", lambda: bench_matmul(emit, torch.bfloat16, "bf16")),
        ("bn_add_relu", lambda: bench_bn_add_relu(emit, torch.float32, "f32")),
        ("bn_add_relu", lambda: bench_bn_add_relu(emit, torch.bfloat16, "bf16")),
    ]
    for name, measure in cases:
        if arguments.case in (None, name):
            measure()


def bench_resnet(emit, arguments):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "golden"))
    from torch_resnet import resnet

    small = arguments.model == "resnet20"
    side = arguments.image_size or (32 if small else 224)
    classes = 10 if small else 1000
    model = channels_last(resnet(arguments.model, classes))
    images = channels_last(torch.randn(arguments.global_batch, 3, side, side))
    targets = torch.randint(0, classes, (arguments.global_batch,))
    optimizer = fused(torch.optim.SGD, model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def steps_of(network):
        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=arguments.dtype == "bf16"):
                loss = loss_of(network(images), targets)
            loss.backward()
            optimizer.step()

        return step

    seconds = median_seconds(steps_of(model), 5, 2)
    try:
        seconds = min(seconds, median_seconds(steps_of(torch.compile(model)), 5, 2, budget=60.0))
    except Exception as error:  # no compiler, or a release whose compiler fails on this
        print(f"torch_peer: not compiled: {str(error).splitlines()[0]}", file=sys.stderr)
    emit(arguments.model, arguments.dtype, seconds, arguments.global_batch / seconds, "images/s")


def bench_step(emit, arguments):
    if arguments.model.startswith("resnet"):
        bench_resnet(emit, arguments)
        return
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
        make = torchvision_image(arguments.image_size or 224)
    except ImportError:
        try:
            make = pillow_image(arguments.image_size or 224)
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
    parser.add_argument("--case", help="measure this case of op alone")
    parser.add_argument("--model", choices=("mlp", "cnn", "resnet18", "resnet20", "resnet50"), default="mlp")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--global-batch", type=int, default=64)
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    parser.add_argument("--parameters", type=int, default=25_000_000)
    parser.add_argument("--photographs", metavar="DIR")
    parser.add_argument("--image-size", type=int, default=0)
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
