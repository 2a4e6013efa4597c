#!/usr/bin/env python3
"""The shape of the tree, checked: includes point left only, private things stay private, files stay short.

usage: includes_point_left.py ROOT | --self-test

Rules, each a function below:
  direction    core <- autograd <- ops <- nn <- optim <- dist <- apps; data sees core and ops; only apps see
               data; dist/comm sees core alone; weft.h, the umbrella, sees the library and is seen by apps
  paths        a quoted include names a file from the root ("core/tensor.h") that is there
  privacy      public headers include neither other libraries nor private headers (detail/)
  length       a file past 600 lines gives a reason in its first comment: a line "Length: why"
  places       no file names a folder of one person's machine
"""

import os
import pathlib
import re
import sys
import tempfile

LEFT_OF = {
    "core": set(),
    "autograd": {"core"},
    "ops": {"core", "autograd"},
    "nn": {"core", "autograd", "ops"},
    "optim": {"core", "autograd", "ops", "nn"},
    "dist": {"core", "autograd", "ops", "nn", "optim"},
    "data": {"core", "ops"},
    "apps": {"core", "autograd", "ops", "nn", "optim", "dist", "data"},
}
UMBRELLA = "weft.h"
SOURCES = {".h", ".cpp", ".cu", ".cuh", ".def"}
COUNTED = SOURCES | {".py", ".sh", ".cmake"}
SKIPPED = {".git", "build", "runs", "__pycache__"}
LONGEST = 600

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
FOREIGN = re.compile(
    r"^(Eigen|unsupported/Eigen|oneapi|nlohmann|CLI|spdlog|fmt|gloo|gtest|gmock|benchmark)/"
    r"|^(dnnl|zlib|omp|mpi|nccl|cuda|cublas|cudnn|jpeglib|turbojpeg|png)[\w.]*(/|\.h$|\.hpp$|$)"
)
# Written so that this file does not name one itself.
PLACES = re.compile(r"(?<![A-Za-z0-9_.$}])/(?:" + "|".join(("home", "root", "work", "Users")) + r")/\w")


def folder_of(path):
    return path.split("/", 1)[0] if "/" in path else ""


def is_private(path):
    return "detail" in path.split("/")[:-1]


def is_public_header(path):
    if path == UMBRELLA:
        return True
    return path.endswith((".h", ".def")) and folder_of(path) in LEFT_OF and folder_of(path) != "apps" \
        and not is_private(path)


def includes(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def check_direction(path, text, _):
    own = folder_of(path)
    if own not in LEFT_OF and path != UMBRELLA:
        return
    for number, quoted, angled in includes(text):
        target = quoted or angled
        if target == UMBRELLA or target.startswith("weft/"):
            if own != "apps":
                yield number, f"only apps and users include {target}"
            continue
        if quoted is None and folder_of(target) not in LEFT_OF:
            continue
        seen = folder_of(target)
        if path == UMBRELLA:
            if seen == "apps":
                yield number, f"{UMBRELLA} includes {target}, of apps"
        elif path.startswith("dist/comm/"):
            if seen != "core" and not target.startswith("dist/comm/"):
                yield number, f"communicators see core alone, this one includes {target}"
        elif seen in LEFT_OF and seen != own and seen not in LEFT_OF[own]:
            allowed = ", ".join(sorted(LEFT_OF[own])) or "nothing"
            yield number, f"{own} sees {allowed}; it includes {target}"


def check_paths(path, text, root):
    if folder_of(path) not in LEFT_OF and path != UMBRELLA:
        return
    for number, quoted, _ in includes(text):
        if quoted is not None and not (root / quoted).is_file():
            yield number, f'expected a path from the root to a file that is there, got "{quoted}"'


def check_privacy(path, text, _):
    if not is_public_header(path):
        return
    for number, quoted, angled in includes(text):
        target = quoted or angled
        if FOREIGN.search(target):
            yield number, f"a public header includes <{target}>, which its users need not have"
        elif is_private(target):
            yield number, f"a public header includes {target}, which is not installed"


def first_comment(text):
    """The comment a file opens with, after a #! line, #pragma once and blank lines."""
    lines = text.splitlines()
    kept = []
    in_block = None
    for line in lines:
        stripped = line.strip()
        if in_block:
            kept.append(stripped)
            if in_block in stripped:
                break
        elif stripped.startswith(("//", "#")) and not re.match(r"#\s*(pragma|include|if|define|!)", stripped):
            kept.append(stripped)
        elif stripped.startswith("/*") or stripped.startswith('"""'):
            in_block = "*/" if stripped.startswith("/*") else '"""'
            kept.append(stripped)
            if in_block in stripped[2 if in_block == "*/" else 3:]:
                break
        elif kept:
            break
        elif stripped and not stripped.startswith("#"):
            break
    return "\n".join(kept)


def check_length(path, text, _):
    length = text.count("\n")
    if pathlib.PurePosixPath(path).suffix in COUNTED and length > LONGEST:
        if not re.search(r"^\W*Length: \w.{10,}", first_comment(text), re.MULTILINE):
            yield 1, f'{length} lines; past {LONGEST} the first comment says why, in a line "Length: why"'


def check_places(path, text, _):
    for number, line in enumerate(text.splitlines(), 1):
        match = PLACES.search(line)
        if match:
            yield number, f"names a place of one machine: {match.group(0)}..."


CHECKS = (check_direction, check_paths, check_privacy, check_length, check_places)


def files(root):
    for directory, folders, names in os.walk(root):
        folders[:] = sorted(
            name for name in folders
            if name not in SKIPPED and not os.path.exists(os.path.join(directory, name, "CMakeCache.txt"))
        )
        for name in sorted(names):
            yield pathlib.Path(directory, name)


def complaints(root):
    root = pathlib.Path(root)
    found = []
    for file in files(root):
        try:
            text = file.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue  # Data, not text.
        path = file.relative_to(root).as_posix()
        for check in CHECKS:
            if check in (check_direction, check_paths, check_privacy) and file.suffix not in SOURCES:
                continue
            found += [f"{path}:{number}: {what}" for number, what in check(path, text, root)]
    return found


def self_test():
    bad_place = "/" + "home/someone/data"
    long_body = "int x;\n" * (LONGEST + 1)
    good = {
        "weft.h": '#include "core/a.h"\n#include "dist/trainer.h"\n',
        "core/a.h": "#include <vector>\n",
        "core/detail/p.h": "#include <Eigen/Core>\n",
        "core/a.cpp": '#include "core/a.h"\n#include "core/detail/p.h"\n#include <zlib.h>\n',
        "ops/add.h": '#include "core/a.h"\n',
        "ops/long.cpp": "// Long.\n// Length: one table, one row an operator.\n" + long_body,
        "dist/trainer.h": '#include "dist/comm/c.h"\n',
        "dist/comm/c.h": '#include "core/a.h"\n',
        "data/d.h": '#include "ops/add.h"\n',
        "apps/x/main.cpp": '#include "data/d.h"\n#include <weft.h>\n#include <CLI/CLI.hpp>\n',
        "docs/a.md": "See https://example.org/home/page and ${dir}/root/x.\n",
    }
    bad = {
        "core/wrong.cpp": ('#include "ops/add.h"\n', "core sees nothing"),
        "core/angled.cpp": ("#include <ops/add.h>\n", "core sees nothing"),
        "data/wrong.cpp": ('#include "dist/trainer.h"\n', "data sees core, ops"),
        "optim/wrong.h": ('#include "data/d.h"\n', "optim sees"),
        "dist/comm/wrong.h": ('#include "ops/add.h"\n', "communicators see core alone"),
        "nn/umbrella.cpp": ('#include "weft.h"\n', "only apps and users"),
        "nn/lost.cpp": ('#include "nn/gone.h"\n', "a file that is there"),
        "nn/relative.cpp": ('#include "../core/a.h"\n', "a path from the root"),
        "nn/foreign.h": ("  #  include <nlohmann/json.hpp>\n", "need not have"),
        "nn/foreign_zlib.h": ("#include <zlib.h>\n", "need not have"),
        "nn/foreign_dnnl.h": ("#include <dnnl.hpp>\n", "need not have"),
        "nn/foreign_eigen.h": ("#include <Eigen/Dense>\n", "need not have"),
        "nn/private.h": ('#include "core/detail/p.h"\n', "not installed"),
        "ops/toolong.cpp": ("// A file.\n" + long_body, "past 600"),
        "scripts/place.sh": (f"cd {bad_place}\n", "one machine"),
    }
    failures = []
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)

        def write(path, text):
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

        for path, text in good.items():
            write(path, text)
        failures += [f"a right tree was blamed: {complaint}" for complaint in complaints(root)]
        for path, (text, expected) in bad.items():
            write(path, text)
            found = complaints(root)
            (root / path).unlink()
            if not any(line.startswith(path + ":") and expected in line for line in found):
                failures.append(f"{path}: expected a complaint with '{expected}', got {found}")
    for failure in failures:
        print(failure)
    print(f"{len(bad)} wrong files tried, {len(failures)} failures")
    return 1 if failures else 0


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        sys.exit(self_test())
    if not (pathlib.Path(sys.argv[1]) / "CMakeLists.txt").is_file():
        sys.exit(f"expected the root of the project, got {sys.argv[1]}")
    found = complaints(sys.argv[1])
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
