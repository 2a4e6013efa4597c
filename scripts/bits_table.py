#!/usr/bin/env python3
"""The bits of every strategy on 1, 2 and 4 processes, as one Markdown table.

usage: bits_table.py [--bin DIR] [--models mlp,norm_cnn,gpt]

Trains an MLP, a CNN with BatchNorm and a GPT with a tied embedding, 20 steps each with AdamW, clipped gradients and
--logical-shards 8, from the command line, and holds every run against one of a single process: the bits of every loss and
every byte of the export. Images are made here. The exit code is 1 if any run differs.
"""

import argparse
import hashlib
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "fsdp")
WORLDS = (1, 2, 4)
STEPS = 20
COMMON = ["--steps", str(STEPS), "--epochs", "40", "--logical-shards", "8", "--global-batch", "40", "--optimizer", "adamw",
          "--clip", "0.5", "--threads", "1", "--quiet"]
MODELS = {
    "mlp": ["mnist", "--model", "mlp", "--lr", "1e-3", "--flip"],
    "norm_cnn": ["mnist", "--model", "norm_cnn", "--lr", "1e-3", "--shift", "2"],
    "gpt": ["gpt", "--layers", "2", "--width", "32", "--heads", "2", "--context", "16", "--dropout", "0.1", "--sample", "0",
            "--data", str(ROOT / "LICENSE")],
}


def write_images(folder):
    """90 images to train on, so that batches of an epoch's end are short, and 50 to test on."""
    chance = random.Random(1)
    for name, count in (("train", 90), ("t10k", 50)):
        labels = bytes(i % 10 for i in range(count))
        pixels = b"".join(bytes(min(255, chance.randrange(64) + (150 if row // 3 == label else 0))
                                for row in range(28) for _ in range(28)) for label in labels)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, count, 28, 28) + pixels)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, count) + labels)


def run(binaries, model, images, folder, *flags):
    """The hash of the export and the bits of the losses."""
    program, *words = MODELS[model]
    command = [str(binaries / program), *words, *COMMON, *flags, "--overwrite", "--run-dir", str(folder / "run"), "--export",
               str(folder / "export")]
    if program == "mnist":
        command += ["--data", str(images)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"bits_table: {' '.join(command)} failed with exit code {done.returncode}:\n{done.stdout}")
    losses = [json.loads(line)["loss_bits"] for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    if len(losses) != STEPS:
        sys.exit(f"bits_table: expected {STEPS} losses, got {len(losses)}: {' '.join(command)}")
    return hashlib.sha256((folder / "export").read_bytes()).hexdigest(), losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--models", default=",".join(MODELS), help="which of the models")
    arguments = parser.parse_args()
    models = arguments.models.split(",")
    if not set(models) <= set(MODELS):
        parser.error(f"--models: expected some of {', '.join(MODELS)}, got {arguments.models}")
    differ = 0
    print("| model | strategy | " + " | ".join(f"{world} process{'es' * (world > 1)}" for world in WORLDS) + " |")
    print("|---|---" + "|---" * len(WORLDS) + "|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_images(folder)
        for model in models:
            alone = run(arguments.bin, model, folder, folder)
            print(f"| {model} | single | {alone[0][:12]}, last loss {alone[1][-1]} |" + " |" * (len(WORLDS) - 1))
            for strategy in STRATEGIES:
                cells = []
                for world in WORLDS:
                    export, losses = run(arguments.bin, model, folder, folder, "--workers", str(world), "--strategy", strategy)
                    same = (export, losses) == alone
                    differ += not same
                    cells.append(f"{export[:12]}, last loss {losses[-1]}" + (" " if same else " DIFFERS "))
                print(f"| {model} | {strategy} | " + "| ".join(cells) + "|", flush=True)
    runs = len(models) * len(STRATEGIES) * len(WORLDS)
    if differ:
        sys.exit(f"bits_table: {differ} of {runs} runs have other bits than a single process")
    print(f"\n{runs} runs: the {STEPS} losses of each and every byte of its export are those of a single process.")


main()
