#!/usr/bin/env python3
"""One table from the lines that scripts/bench.sh measured.

usage: bench_table.py [--parameters N] [--missing torch] [--missing libtorch] [--load L] FOLDER

FOLDER holds WORKLOAD.TOOL.jsonl, a line a measurement as `weft bench --json` writes it. Lines are joined by
(workload, bench, case, threads, dtype); several lines of one tool, from interleaved runs, give their median.
A ratio says how weft compares in the sense of its target: a share of the peer's time ("<= 0.30 time") or a
multiple of its speed (">= 4.00 speed"). A target is met (yes) or missed (NO) only where every pairing of runs
says so; where runs disagree the verdict is "unsteady". The exit code is 0 whatever the targets say.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

# (bench, case, workload or None): (peer, kind, bound)...  kind "time" is weft's time over the peer's, at most
# the bound; kind "speed" is the peer's time over weft's, at least the bound. The peers "memory" and "limit" are
# times of their own: what memory speed would allow, and LIMITS.
TARGETS = {
    ("op", "add", None): [("torch", "time", 0.30), ("libtorch", "time", 0.50)],
    ("op", "add_autograd", None): [("torch", "time", 0.35)],
    ("op", "matmul_1024_f32", "matmul"): [("onednn", "speed", 0.90)],
    ("op", "matmul_1024_bf16", "matmul"): [("onednn", "speed", 0.90)],
    ("op", "bn_add_relu", "norm"): [("torch", "speed", 3.5), ("memory", "speed", 0.70)],
    ("step", "mlp", "mlp_b8"): [("torch", "speed", 4.0), ("libtorch", "speed", 1.6)],
    ("step", "mlp", "mlp_b64"): [("torch", "speed", 1.5), ("libtorch", "speed", 1.25)],
    ("step", "cnn", "cnn_b128"): [("torch", "speed", 1.4)],
    ("step", "resnet50", "resnet50_f32"): [("torch", "speed", 1.5)],
    ("step", "resnet50", "resnet50_bf16"): [("torch", "speed", 1.5)],  # 1.9 where the processor has AMX
    ("step", "resnet18", "resnet18_f32"): [("torch", "speed", 1.3)],
    ("step", "resnet18", "resnet18_bf16"): [("torch", "speed", 1.6)],
    ("step", "resnet20", "resnet20_b128"): [("torch", "speed", 1.3)],
    ("step", "resnet20", "resnet20_b8"): [("torch", "speed", 1.8)],
    ("step", "mlp", "mlp_ddp"): [("torch", "speed", 4.0)],
    ("step", "cnn", "cnn_ddp"): [("torch", "speed", 1.4)],
    ("step", "cnn", "cnn_2_ranks"): [("weft_one_rank", "speed", 0.95)],
    ("step", "gpt", "gpt_1_rank_ddp"): [("weft_single", "time", 1.01)],
    ("step", "gpt", "gpt_1_rank_fsdp"): [("weft_single", "time", 1.01)],
    ("step", "gpt", "gpt_ddp"): [("torch", "speed", 1.15)],
    ("step", "gpt", "gpt_fsdp"): [("torch", "speed", 1.4), ("deepspeed", "speed", 1.4), ("weft_ddp", "time", 1.15)],
    ("step", "gpt", "gpt_zero1"): [("deepspeed", "speed", 1.25)],
    ("step", "gpt", "gpt_zero2"): [("deepspeed", "speed", 1.25)],
    ("comm", "all_reduce_1024", "shm"): [("limit", "time", 1.0)],
    ("comm", "all_reduce_4096", "shm"): [("limit", "time", 1.0)],
    ("comm", "all_reduce_4194304", "shm"): [("openmpi", "speed", 3.0)],
    ("comm", "all_reduce_100000000", "shm"): [("openmpi", "speed", 3.0), ("memory", "speed", 0.70)],
    ("comm", "reduce_scatter_4194304", "shm"): [("openmpi", "speed", 3.0)],
    ("comm", "reduce_scatter_100000000", "shm"): [("openmpi", "speed", 3.0), ("memory", "speed", 0.70)],
    # OpenMPI gathers at the speed of memory, too.
    ("comm", "all_gather_4194304", "shm"): [("openmpi", "speed", None)],
    ("comm", "all_gather_100000000", "shm"): [("openmpi", "speed", None), ("memory", "speed", 0.70)],
    ("comm", "all_reduce_1024", "shm_4_ranks"): [("torch", "speed", 2.0)],
    ("comm", "all_reduce_4194304", "shm_4_ranks"): [("torch", "speed", 2.0)],
    ("comm", "all_reduce_100000000", "shm_4_ranks"): [("torch", "speed", 2.0)],
    ("comm", "all_reduce_1024", "tcp"): [("torch", "speed", 2.0)],
    ("comm", "all_reduce_4194304", "tcp"): [("torch", "speed", 2.0)],
    ("comm", "all_reduce_100000000", "tcp"): [("torch", "speed", 1.2)],
    ("optim", "sgd", None): [("torch", "speed", 0.95), ("memory", "speed", 0.85)],
    ("optim", "adamw", None): [("torch", "speed", 0.95), ("memory", "speed", 0.85)],
    ("data", "gather", None): [("limit", "time", 1.0)],
    ("data", "decode_to_tensor", None): [("limit", "time", 1.0), ("torch", "speed", 2.0)],
}

# Seconds: of a sample, gathered from memory into a normalised batch; of a photograph, from its file; of a small
# all-reduce in shared memory.
LIMITS = {("comm", "all_reduce_1024"): 3e-6, ("comm", "all_reduce_4096"): 3e-6,
          ("data", "gather"): 0.3e-6, ("data", "decode_to_tensor"): 1.5e-3}

# f32 values read and written for each parameter in one step.
OPTIMIZER_BYTES = {"sgd": 5 * 4, "adamw": 7 * 4}

# Passes over a matrix of 16*256*56*56 elements that BatchNorm, addition and ReLU take forward and backward, and
# a bit an element that is written once and read twice.
NORM_ELEMENTS = 16 * 256 * 56 * 56
NORM_BYTES = {"f32": NORM_ELEMENTS * (10 * 4 + 3 / 8), "bf16": NORM_ELEMENTS * (10 * 2 + 3 / 8)}

# Bytes of memory that a collective in place between two ranks reads and writes for each of its bytes. Either rank
# reads half of both their buffers, and writes it to both, or to its own; or it takes half from the other.
COLLECTIVE_BYTES = {"all_reduce": 2 * 2, "reduce_scatter": 2 + 1, "all_gather": 2}

# A load average past this means that something else was running.
QUIET = 0.5

COLUMNS = ("case", "threads", "dtype", "weft", "torch", "libtorch", "against", "ratio", "target", "met?")


def read_lines(folder):
    """{(workload, bench, case, threads, dtype): {tool: [(seconds, line)...]}}: op, step, comm, optim, data.

    Threads are those of all ranks, so that two ranks of one thread meet one rank of two.
    """
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        workload, tool = path.name[: -len(".jsonl")].rsplit(".", 1)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                row = json.loads(line)
                threads = int(row["threads"]) * int(row.get("workers", 1))
                key = (workload, row["bench"], row["case"], threads, row["dtype"])
                seconds = float(row["median_seconds"])
            except (ValueError, KeyError, TypeError) as error:
                sys.exit(f"bench_table: {path}:{number}: expected a line of `weft bench`, got {line!r} ({error})")
            found.setdefault(key, {}).setdefault(tool, []).append((seconds, row))
    order = ("op", "step", "comm", "optim", "data")
    rank = {key: order.index(key[1]) if key[1] in order else len(order) for key in found}
    return dict(sorted(found.items(), key=lambda item: rank[item[0]]))


def duration(seconds):
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds / size < 100 else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def memory_rates(found):
    """Bytes a second of STREAM copy by thread count: the fastest measure, which is the hardest to reach."""
    rates = {}
    for (_, bench, case, threads, _), tools in found.items():
        if (bench, case) == ("stream", "copy"):
            for lines in tools.values():
                rate = statistics.median(float(row["rate"]) for _, row in lines) * 1e9
                rates[threads] = max(rate, rates.get(threads, 0.0))
    return rates


def compare(kind, weft, peer):
    return weft / peer if kind == "time" else peer / weft


def verdict(kind, bound, weft, peer):
    """Over all pairings of one run of weft with one of the peer."""
    if bound is None:
        return "-"
    ratios = [compare(kind, one, other) for one in weft for other in peer]
    held = [ratio <= bound if kind == "time" else ratio >= bound for ratio in ratios]
    return "yes" if all(held) else "unsteady" if any(held) else "NO"


def table_rows(found, missing, parameters):
    rates = memory_rates(found)
    rows = []
    for key, tools in found.items():
        workload, bench, case, threads, dtype = key
        if bench == "stream":
            continue
        medians = {tool: statistics.median(seconds for seconds, _ in lines) for tool, lines in tools.items()}
        if bench == "optim" and case in OPTIMIZER_BYTES and threads in rates:
            medians["memory"] = OPTIMIZER_BYTES[case] * parameters / rates[threads]
        if (bench, case) == ("op", "bn_add_relu") and dtype in NORM_BYTES and threads in rates:
            medians["memory"] = NORM_BYTES[dtype] / rates[threads]
        if bench == "comm" and 2 in rates:
            collective, size = case.rsplit("_", 1)
            if collective in COLLECTIVE_BYTES:
                medians["memory"] = COLLECTIVE_BYTES[collective] * int(size) / rates[2]
        if (bench, case) in LIMITS:
            medians["limit"] = LIMITS[bench, case]
        runs = {tool: [seconds for seconds, _ in lines] for tool, lines in tools.items()}
        runs.update({fixed: [medians[fixed]] for fixed in ("memory", "limit") if fixed in medians})
        label = f"{bench} {workload if bench == 'step' else case}" + (f" {workload}" if bench == "comm" else "")

        def cell(tool):
            if tool in medians:
                return duration(medians[tool])
            return "not run" if tool in missing else "-"

        first = [label, str(threads), dtype, cell("weft"), cell("torch"), cell("libtorch")]
        targets = TARGETS.get((bench, case, workload)) or TARGETS.get((bench, case, None)) or []
        if not targets:
            targets = [(peer, "speed", None) for peer in ("torch", "libtorch") if peer in medians]
        if not targets:
            rows.append(first + ["-", "-", "-", "-"])
        for peer, kind, bound in targets:
            ratio, met = None, "not measured"
            if "weft" in medians and peer in medians:
                ratio = compare(kind, medians["weft"], medians[peer])
                met = verdict(kind, bound, runs["weft"], runs[peer])
            sign = "<=" if kind == "time" else ">="
            target = "-" if bound is None else f"{sign} {bound:.2f} {kind}"
            rows.append(first + [peer, "-" if ratio is None else f"{ratio:.2f}", target, met])
            first = [""] * 6
    return rows, rates


def render(rows):
    widths = [max(len(row[i]) for row in [COLUMNS, *rows]) for i in range(len(COLUMNS))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in [COLUMNS, *rows]]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def report(folder, missing, parameters, load=0.0):
    rows, rates = table_rows(read_lines(folder), missing, parameters)
    if not rows:
        sys.exit(f"bench_table: {folder} holds no measurements")
    text = [render(rows)]
    for threads, rate in sorted(rates.items()):
        text.append(f"Memory speed (STREAM copy, {threads} threads): {rate / 1e9:.1f} GB/s")
    if "torch" in missing:
        text.append("PyTorch (Python) was not run: left out, or not to be had here (scripts/peers.sh says why).")
    if "libtorch" in missing:
        text.append("libtorch (PyTorch's C++ side) was not run: left out, or not to be had here (scripts/peers.sh says why).")
    if any(row[6] == "deepspeed" and row[9] == "not measured" for row in rows):
        text.append("DeepSpeed was not run: build/peers/bin/pip install --no-build-isolation deepspeed adds it.")
    if any(row[6] == "openmpi" and row[9] == "not measured" for row in rows):
        text.append("OpenMPI was not run: it wants mpicc and mpirun (Debian: libopenmpi-dev, openmpi-bin).")
    if any(row[6] == "onednn" and row[9] == "not measured" for row in rows):
        text.append("Where oneDNN was not measured, it has no such product on this processor.")
    if load > QUIET:
        text.append(f"The machine was busy with other work when this began (load {load:.1f}): these numbers prove nothing.")
    verdicts = [row[-1] for row in rows]
    text.append(
        f"Targets: {verdicts.count('yes')} met, {verdicts.count('NO')} missed, "
        f"{verdicts.count('unsteady')} unsteady, {verdicts.count('not measured')} not measured."
    )
    return "\n".join(text)


def self_test():
    def line(bench, case, threads, seconds, rate=1.0, workers=1):
        return json.dumps(dict(bench=bench, case=case, threads=threads, workers=workers, dtype="f32",
                               median_seconds=seconds, rate=rate, unit="x")) + "\n"

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "op.weft.jsonl").write_text(line("op", "add", 1, 1e-7) + line("op", "add", 1, 3e-7))
        (folder / "op.torch.jsonl").write_text(line("op", "add", 1, 1e-6))
        (folder / "mlp_b8.weft.jsonl").write_text(line("step", "mlp", 1, 1e-4))
        (folder / "mlp_b8.torch.jsonl").write_text(line("step", "mlp", 1, 3e-4))
        (folder / "mlp_b64.weft.jsonl").write_text(line("step", "mlp", 1, 1.99e-4))
        (folder / "mlp_b64.torch.jsonl").write_text(line("step", "mlp", 1, 3e-4))
        (folder / "optim_sgd.weft.jsonl").write_text(line("optim", "sgd", 2, 0.05))
        (folder / "matmul.weft.jsonl").write_text(line("op", "matmul_1024_f32", 1, 0.04) + line("op", "matmul_1024_bf16", 1, 0.04))
        (folder / "matmul.onednn.jsonl").write_text(line("op", "matmul_1024_f32", 1, 0.03))
        (folder / "norm.weft.jsonl").write_text(line("op", "bn_add_relu", 2, 0.08))
        (folder / "norm.torch.jsonl").write_text(line("op", "bn_add_relu", 2, 0.4))
        (folder / "shm.weft.jsonl").write_text(line("comm", "all_reduce_4096", 1, 2e-6) + line("comm", "all_reduce_100000000", 1, 0.02))
        (folder / "cnn_2_ranks.weft.jsonl").write_text(line("step", "cnn", 1, 0.1, workers=2))
        (folder / "cnn_2_ranks.weft_one_rank.jsonl").write_text(line("step", "cnn", 2, 0.098))
        (folder / "shm.openmpi.jsonl").write_text(line("comm", "all_reduce_100000000", 1, 0.07))
        (folder / "gpt_fsdp.weft.jsonl").write_text(line("step", "gpt", 1, 1.0))
        (folder / "gpt_fsdp.weft_ddp.jsonl").write_text(line("step", "gpt", 1, 0.9))
        (folder / "gpt_zero2.weft.jsonl").write_text(line("step", "gpt", 1, 1.0))
        (folder / "data.weft.jsonl").write_text(line("data", "gather", 1, 2.4e-7))
        (folder / "stream.stream.jsonl").write_text(line("stream", "copy", 2, 0.05, 10.0))
        rows, rates = table_rows(read_lines(folder), ["libtorch"], 25_000_000)
        by_key = {}
        label = ""
        for row in rows:
            label = row[0] or label
            by_key[label, row[6]] = row
        assert by_key["op add", "torch"][7:] == ["0.20", "<= 0.30 time", "yes"], rows
        assert by_key["op add", "libtorch"][9] == "not measured", rows
        assert by_key["op add", "torch"][5] == "not run", rows
        assert by_key["step mlp_b8", "torch"][7:] == ["3.00", ">= 4.00 speed", "NO"], rows
        assert by_key["step mlp_b64", "torch"][7:] == ["1.51", ">= 1.50 speed", "yes"], rows
        assert by_key["optim sgd", "memory"][7:] == ["1.00", ">= 0.85 speed", "yes"], rows
        assert by_key["op matmul_1024_f32", "onednn"][7:] == ["0.75", ">= 0.90 speed", "NO"], rows
        assert by_key["op matmul_1024_bf16", "onednn"][9] == "not measured", rows
        assert by_key["op bn_add_relu", "torch"][7:] == ["5.00", ">= 3.50 speed", "yes"], rows
        assert by_key["op bn_add_relu", "memory"][7:] == ["0.65", ">= 0.70 speed", "NO"], rows
        assert by_key["comm all_reduce_4096 shm", "limit"][7:] == ["0.67", "<= 1.00 time", "yes"], rows
        assert by_key["comm all_reduce_100000000 shm", "openmpi"][7:] == ["3.50", ">= 3.00 speed", "yes"], rows
        assert by_key["comm all_reduce_100000000 shm", "memory"][7:] == ["2.00", ">= 0.70 speed", "yes"], rows
        assert by_key["step gpt_fsdp", "weft_ddp"][7:] == ["1.11", "<= 1.15 time", "yes"], rows
        assert by_key["step cnn_2_ranks", "weft_one_rank"][7:] == ["0.98", ">= 0.95 speed", "yes"], rows
        assert by_key["step gpt_zero2", "deepspeed"][9] == "not measured", rows
        assert by_key["data gather", "limit"][7:] == ["0.80", "<= 1.00 time", "yes"], rows
        assert rates == {2: 10e9}
        assert verdict("time", 0.3, [0.1, 0.4], [1.0]) == "unsteady"
        assert verdict("speed", 2.0, [1.0, 1.1], [2.0, 2.1]) == "unsteady"
        assert verdict("time", 0.3, [0.4, 0.5], [1.0]) == "NO"
        assert "DeepSpeed was not run" in report(folder, [], 1)
        assert "no such product" in report(folder, [], 1)
        assert "prove nothing" not in report(folder, [], 1)
        assert "prove nothing" in report(folder, [], 1, load=2.0)
        assert "Targets: 10 met, 3 missed" in report(folder, ["libtorch"], 25_000_000)
    print("bench_table: self-test passed")


def main():
    parser = argparse.ArgumentParser(description="One table from the lines that scripts/bench.sh measured")
    parser.add_argument("--parameters", type=int, default=25_000_000, help="of the optimizer workloads")
    parser.add_argument("--missing", action="append", default=[], choices=("torch", "libtorch"))
    parser.add_argument("--load", type=float, default=0.0, help="load average before the first measurement")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("folder", nargs="?")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
    elif arguments.folder is None:
        parser.error("expected a FOLDER")
    else:
        print(report(arguments.folder, arguments.missing, arguments.parameters, arguments.load))


if __name__ == "__main__":
    main()
