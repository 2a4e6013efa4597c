#!/usr/bin/env python3
"""Memory and traffic of every strategy, measured against the formulas, as one Markdown document.

usage: state_table.py [--bin DIR] [--write | --check]

Every number comes from the result.json of real runs of `gpt` by processes, with AdamW in f32: what rests on a rank
from its ledger, what a step sends from the difference of two runs that differ in their number of steps alone (so that
start-up, evaluation and the end fall out). With psi the model's elements and W ranks, the formulas are

    parameters   4 psi, or 4 psi / W where they are sharded, and padding
    gradients    4 psi, or 4 psi / W where they are sharded, and padding; twice 4 psi with several micro-batches a step
    optimizer    8 psi, or 8 psi over all ranks together where it is sharded; never padded
    sent         a multiple of 4 (psi + padding) (W - 1) / W

and in mixed precision (--dtype bf16) 2 psi of parameters, 2 psi of gradients, 12 psi of optimizer, masters included, and
multiples of 2 psi sent.

The exit code is 1 if any number is not exactly its formula, or if --check finds another text in docs/course/table.md.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/course/table.md"
WORLDS = (1, 2, 4)
F32 = 4
BF16 = 2

# Whether P, G, O are sharded; what a step of k micro-batches sends, in buffers of the whole model's size.
STRATEGIES = {
    "ddp": ((False, False, False), lambda k: {"all_reduce": 2}),
    "zero1": ((False, False, True), lambda k: {"reduce_scatter": 1, "all_gather": 1}),
    "zero2": ((False, True, True), lambda k: {"reduce_scatter": k, "all_gather": 1}),
    "zero3": ((True, True, True), lambda k: {"reduce_scatter": k, "all_gather": 2 * k}),
    "fsdp": ((True, True, True), lambda k: {"reduce_scatter": k, "all_gather": 2 * k}),
}
# Small things that travel apart from the model: losses and norms of a step, and what is said at the start and the end.
NOT_MODEL = {"", "agreement", "losses", "norms", "evaluation", "result", "buffers"}

MODELS = {
    "even": ["--layers", "2", "--width", "64", "--heads", "4", "--context", "32"],
    "wide": ["--layers", "2", "--width", "128", "--heads", "4", "--context", "32"],
    "uneven": ["--layers", "2", "--width", "36", "--heads", "3", "--context", "30"],
}
COMMON = ["--data", str(ROOT / "LICENSE"), "--threads", "1", "--global-batch", "8", "--optimizer", "adamw", "--sample", "0",
          "--quiet"]


class Mismatch(Exception):
    pass


def run(binary, strategy, world, model, micro_batches, dtype, steps, folder):
    command = [str(binary), *MODELS[model], *COMMON, "--strategy", strategy, "--workers", str(world), "--accumulate",
               str(micro_batches), "--dtype", dtype, "--steps", str(steps), "--run-dir", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"state_table: {' '.join(command)} failed with exit code {done.returncode}:\n{done.stdout}")
    return json.loads((folder / "result.json").read_text())


def model_traffic(result):
    """Bytes by collective of the flat buffers; and all else together."""
    sent, other = {}, 0
    for unit, collectives in result["communication_by_unit"].items():
        for name, total in collectives.items():
            if unit in NOT_MODEL:
                other += total["bytes"]
            else:
                sent[name] = sent.get(name, 0) + total["bytes"]
    return sent, other


class Row:
    """One strategy on so many ranks: measures, and holds the measure against the formula."""

    def __init__(self, binary, strategy, world, model, micro_batches=1, dtype="f32"):
        self.name = f"{strategy} on {world} ranks, {model}, {micro_batches} micro-batches, {dtype}"
        self.mixed = dtype != "f32"
        self.width = BF16 if self.mixed else F32
        self.states = (3 if self.mixed else 2) * F32  # AdamW's two averages, and masters
        self.strategy, self.world, self.k = strategy, world, micro_batches
        with tempfile.TemporaryDirectory() as folder:
            short, long = (run(binary, strategy, world, model, micro_batches, dtype, steps, pathlib.Path(folder))
                           for steps in (1, 3))
        self.psi = long["parameters"]
        self.memory(long)
        self.traffic(short, long)

    def expect(self, what, measured, formula):
        if measured != formula:
            raise Mismatch(f"{self.name}: {what}: measured {measured}, the formula says {formula}")

    def memory(self, result):
        sharded, _ = STRATEGIES[self.strategy]
        share = {what: self.world if split else 1 for what, split in zip(("P", "G", "O"), sharded)}
        ranks = result["ranks"]
        self.expect("ranks", len(ranks), self.world)
        told = ranks[0]["state_bytes"]
        # All flat buffers of the model together, with the padding that the engine states.
        self.whole = told["parameters"] * share["P"]
        self.padding = self.whole - self.width * self.psi
        if not 0 <= self.padding < self.whole / 10:
            raise Mismatch(f"{self.name}: {self.padding} bytes of padding")
        if self.mixed:
            self.expect("padding", self.padding, 0)
        self.expect("stated padding", told["padding"] * self.world,
                    self.padding * self.world // share["P"] + self.padding * self.world // share["G"])
        self.p, self.g = self.whole // share["P"], self.whole // share["G"]
        for rank in ranks:
            resident = rank["resident_bytes"]
            self.expect("parameters", resident["parameters"], self.p)
            # Where full gradients rest, a sum over several micro-batches and the buffer in which the next one lands.
            self.buffers = 1 if self.k == 1 or sharded[1] else 2
            self.expect("gradients", resident["gradients"], self.buffers * self.g)
        optimizer = [rank["resident_bytes"]["optimizer"] for rank in ranks]
        copies = self.world // share["O"]
        self.expect("optimizer on all ranks", sum(optimizer), copies * self.states * self.psi)
        self.o = max(optimizer)
        if self.padding == 0 or share["O"] == 1:
            for bytes_ in optimizer:
                self.expect("optimizer", bytes_, self.states * self.psi // share["O"])

    def traffic(self, short, long):
        steps = long["steps"] - short["steps"]
        self.expect("steps between", steps, 2)
        few, few_other = model_traffic(short)
        many, many_other = model_traffic(long)
        expected = STRATEGIES[self.strategy][1](self.k)
        self.sent = {}
        for name in sorted(set(few) | set(many)):
            difference = many.get(name, 0) - few.get(name, 0)
            formula = expected.get(name, 0) * self.whole * (self.world - 1) // self.world
            self.expect(f"{name} of a step", difference, steps * formula)
            self.sent[name] = formula
        self.total = sum(self.sent.values())
        self.multiple = sum(expected.values())
        self.expect("sent in a step", self.total, self.multiple * self.whole * (self.world - 1) // self.world)
        self.other = (many_other - few_other) // steps


def number(value):
    return f"{value:,}"


def markdown_table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def share(row, which):
    split = STRATEGIES[row.strategy][0][which] and row.world > 1
    coefficient = (("2", "2", "12") if row.mixed else ("4", "4", "8"))[which]
    text = f"{coefficient}Ψ"
    if row.padding > 0 and which < 2:
        text = f"({text} + padding)" if split else f"{text} + padding"
    return f"{text}/{row.world}" if split else text


def state_section(rows):
    psi = rows[0].psi
    whole = f"{rows[0].width}Ψ"
    table = markdown_table(
        ["strategy", "W", "P", "", "G", "", "O", "", "P + G + O", "padding of P", "sent in a step", "", "beside it"],
        [[row.strategy, str(row.world), number(row.p), share(row, 0), number(row.g), share(row, 1), number(row.o),
          share(row, 2), number(row.p + row.g + row.o), number(row.padding), number(row.total),
          f"{row.multiple} · {f'({whole} + padding)' if row.padding else whole} · {row.world - 1}/{row.world}", number(row.other)] for row in rows])
    return f"Ψ = {number(psi)} elements, {whole} = {number(rows[0].width * psi)} bytes.\n\n{table}\n"


def micro_section(rows):
    table = markdown_table(
        ["strategy", "k", "G", "all-reduce", "reduce-scatter", "all-gather", "sent in a step", ""],
        [[row.strategy, str(row.k), number(row.buffers * row.g), *(number(row.sent.get(name, 0)) for name in
                                      ("all_reduce", "reduce_scatter", "all_gather")),
          number(row.total), f"{row.multiple} · 4Ψ · 1/2"] for row in rows])
    return f"{table}\n"


def document(binary):
    even = [Row(binary, strategy, world, "even") for strategy in STRATEGIES for world in WORLDS]
    if any(row.padding for row in even):
        raise Mismatch("the even model is expected to need no padding")
    uneven = [Row(binary, strategy, world, "uneven") for strategy in STRATEGIES for world in WORLDS]
    if not any(row.padding for row in uneven):
        raise Mismatch("the uneven model is expected to need padding")
    mixed = [Row(binary, strategy, world, "wide", dtype="bf16") for strategy in STRATEGIES for world in WORLDS]
    micro = [Row(binary, strategy, 2, "even", k) for strategy in STRATEGIES for k in (1, 2, 4)]
    return f"""# Memory and traffic, measured

Made by `scripts/state_table.sh --write` and checked by a test (`state_table`): each figure is a reading from the
`result.json` of a run of `gpt` by W processes with AdamW, in f32 unless said otherwise, and equals its formula to the byte, else the script fails.
P, G, O are the bytes of parameters, gradients and optimizer state that rest on one rank between steps, as its ledger has
counted them. What a step sends is what one rank sends in the model's flat buffers. *Beside it* are the few numbers in f64
that travel by all-reduce as well: the losses of the shards, which parameters were used, the order in which buffers become
ready, and the squares for the gradient's norm.

## A model that needs no padding

`gpt {' '.join(MODELS['even'])}`: every parameter's size is a multiple of what four shards ask for.

{state_section(even)}
## A model that needs some

`gpt {' '.join(MODELS['uneven'])}`. Inside a flat buffer each parameter starts on a border of 16
elements, and a buffer's length is a multiple of 16 for each of its shards; *padding of P* is what all buffers together hold
beyond 4Ψ. P and G rest with their share of it, and it travels. The optimizer holds none: where it is sharded, the ranks' shares differ a little and add up to 8Ψ
exactly; the table shows the largest.

{state_section(uneven)}
## Mixed precision

`gpt {' '.join(MODELS['wide'])} --dtype bf16`: parameters and gradients are of 16 bits, at rest and on their way; O are
f32 masters (4Ψ) and AdamW's two averages of them (8Ψ). This is the ZeRO paper's 2Ψ + 2Ψ + 12Ψ.

{state_section(mixed)}
## Micro-batches

The first model on two ranks, with a step cut into k micro-batches (`--accumulate k`). Rows that keep gradients sharded
reduce them after every micro-batch, and rows that keep parameters sharded gather them twice in each. Where gradients rest
whole, k > 1 takes a second buffer: one holds the sum, the next micro-batch lands in the other.

{micro_section(micro)}"""


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    binary = options.bin / "gpt"
    if not binary.is_file():
        sys.exit(f"state_table: expected {binary}; build first: cmake --preset release && cmake --build --preset release")
    try:
        text = document(binary)
    except Mismatch as mismatch:
        print(f"state_table: {mismatch}", file=sys.stderr)
        sys.exit(1)
    if options.write:
        DOCUMENT.write_text(text)
    if options.check:
        if DOCUMENT.read_text() != text:
            sys.exit("state_table: docs/course/table.md says something else; scripts/state_table.sh --write makes it anew")
        return
    print(text)


if __name__ == "__main__":
    main()
