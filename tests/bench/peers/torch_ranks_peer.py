#!/usr/bin/env python3
"""What PyTorch and DeepSpeed make of `weft bench step` and `weft bench comm` with several ranks on one host.

usage: torch_ranks_peer.py step --workers N --threads N --model mlp|cnn|gpt --strategy S --global-batch N
                                [--optimizer sgd|adamw] [--untied] [--engine torch|deepspeed]
       torch_ranks_peer.py comm --workers N [--backend tcp] [--bytes A,B,C]
each with --json FILE. S is ddp or, for the gpt, fsdp (FSDP2, a unit per block); with DeepSpeed zero1, zero2 or zero3
(fsdp is its zero3). Ranks are processes that this program starts, joined by Gloo, the one backend for processors that
both have; DDP reduces gradients where they lie, optimizers are fused. Exit code 3: it has not what the workload needs.
"""

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import torch.nn as nn
import torch.nn.functional as F

from torch_peer import Cnn, channels_last, fused

CONTEXT, VOCABULARY, WIDTH, HEADS, LAYERS = 128, 256, 384, 6, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, tokens, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(rows, tokens, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(rows, tokens, WIDTH))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        hidden = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden)).flatten(0, 1)


def model_and_batch(name, rows):
    """The model, one rank's inputs and targets, and how many steps are timed and how many warm up."""
    if name == "gpt":
        ids = torch.randint(0, VOCABULARY, (rows, CONTEXT))
        return Gpt(), ids, ids.flatten(), 5, 2
    targets = torch.randint(0, 10, (rows,))
    if name == "mlp":
        model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
        return model, torch.randn(rows, 784), targets, 300, 30
    return channels_last(Cnn()), channels_last(torch.randn(rows, 1, 28, 28)), targets, 15, 3


def ranked_median(step, rounds, warm_up):
    for _ in range(warm_up):
        step()
    seconds = []
    for _ in range(rounds):
        dist.barrier()
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def optimizer_of(name, model):
    if name == "adamw":
        return fused(torch.optim.AdamW, model.parameters(), lr=1e-4)
    return fused(torch.optim.SGD, model.parameters(), lr=0.01, momentum=0.9)


def torch_step(model, inputs, targets, arguments):
    if arguments.strategy == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=True, static_graph=True, broadcast_buffers=False)
    optimizer = optimizer_of(arguments.optimizer, model)

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def deepspeed_step(model, inputs, targets, arguments):
    import deepspeed

    stage = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}[arguments.strategy]
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        optimizer=optimizer_of(arguments.optimizer, model),
        config={
            "train_micro_batch_size_per_gpu": len(inputs),
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
        },
    )

    def step():
        engine.backward(F.cross_entropy(engine(inputs), targets))
        engine.step()

    return step


def bench_step(emit, arguments):
    rows = arguments.global_batch // dist.get_world_size()
    model, inputs, targets, rounds, warm_up = model_and_batch(arguments.model, rows)
    make = deepspeed_step if arguments.engine == "deepspeed" else torch_step
    seconds = ranked_median(make(model, inputs, targets, arguments), rounds, warm_up)
    emit(arguments.model, seconds, arguments.global_batch / seconds, "samples/s")


def bench_comm(emit, arguments):
    ranks = dist.get_world_size()
    for size in map(int, arguments.bytes.split(",")):
        values = torch.zeros(size // 4)
        rounds = max(15, min(2000, 40_000_000 // (size + 1)))
        seconds = ranked_median(lambda: dist.all_reduce(values), rounds, 3)
        emit(f"all_reduce_{size}", seconds, size / seconds / 1e9 * 2 * (ranks - 1) / ranks, "GB/s bus")


def run_rank(rank, port, arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank),
                      WORLD_SIZE=str(arguments.workers), LOCAL_WORLD_SIZE=str(arguments.workers))
    warnings.filterwarnings("ignore")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    if arguments.engine == "deepspeed":
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo")
    rows = []

    def emit(case, seconds, rate, unit):
        rows.append(dict(bench=arguments.what, case=case, threads=arguments.threads, workers=arguments.workers,
                         dtype="f32", median_seconds=seconds, rate=rate, unit=unit))

    (bench_step if arguments.what == "step" else bench_comm)(emit, arguments)
    if rank == 0:
        with open(arguments.rows, "w") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
    dist.destroy_process_group()


def supported(arguments):
    if arguments.what == "comm":
        return arguments.engine == "torch"
    if arguments.engine == "deepspeed":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        try:
            import deepspeed  # noqa: F401
        except ImportError:
            return False
        return arguments.model == "gpt" and arguments.optimizer == "adamw"
    return arguments.strategy == "ddp" or (arguments.strategy == "fsdp" and arguments.model == "gpt")


def main():
    parser = argparse.ArgumentParser(description="What others make of `weft bench` with several ranks")
    parser.add_argument("what", choices=("step", "comm"))
    parser.add_argument("--engine", choices=("torch", "deepspeed"), default="torch")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", choices=("mlp", "cnn", "gpt"), default="mlp")
    parser.add_argument("--strategy", choices=("ddp", "zero1", "zero2", "zero3", "fsdp"), default="ddp")
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    parser.add_argument("--untied", action="store_true", help="what this gpt always is")
    parser.add_argument("--global-batch", type=int, default=64)
    parser.add_argument("--backend", choices=("gloo", "tcp", "shm"), default="gloo", help="it has Gloo, whatever is asked")
    parser.add_argument("--bytes", default="1024,4194304,100000000")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if not supported(arguments):
        sys.exit(3)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        arguments.rows = os.path.join(folder, "rows")
        multiprocessing.spawn(run_rank, (port, arguments), nprocs=arguments.workers)
        with open(arguments.rows) as lines:
            text = lines.read()
    if arguments.json:
        with open(arguments.json, "w") as out:
            out.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
