#!/usr/bin/env python3
"""Reads an exported safetensors file as Python's users would, and holds it against what it must be.

usage: check_export.py FILE EXPECTED

EXPECTED is a safetensors file with the same tensors, or a JSON file {"name": [f32 values in row-major order], ...}. FILE
is read by the format's rules with Python alone and, where the packages safetensors and numpy are at hand, by these, too:
both must find the same. The last line says which have read it.
"""
import json
import math
import struct
import sys

FORMATS = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "U8": "B", "BOOL": "?"}


def expect(actual, expected, what):
    if actual != expected:
        sys.exit(f"{what}: expected {expected!r}, got {actual!r}")


def read(path):
    """By the rules: {name: (dtype, shape, values)}."""
    with open(path, "rb") as file:
        content = file.read()
    length, = struct.unpack_from("<Q", content)
    header, data = json.loads(content[8:8 + length].decode("utf-8")), content[8 + length:]
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        layout = "<" + FORMATS[entry["dtype"]] * math.prod(entry["shape"])
        expect(end - begin, struct.calcsize(layout), f"bytes of {name}")
        tensors[name] = (entry["dtype"], entry["shape"], list(struct.unpack(layout, data[begin:end])))
    return tensors


def read_with_package(path):
    from safetensors.numpy import load_file

    return {name: (list(array.shape), array.flatten().tolist()) for name, array in load_file(path).items()}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = read(sys.argv[1])
    if sys.argv[2].endswith(".json"):
        with open(sys.argv[2], encoding="utf-8") as file:
            expected = json.load(file)
        expect({name: values for name, (_, _, values) in found.items()}, expected, "tensors")
        expect({dtype for dtype, _, _ in found.values()}, {"F32"}, "dtypes")
    else:
        expect(found, read(sys.argv[2]), "tensors")
    readers = "Python"
    try:
        by_package = read_with_package(sys.argv[1])
        readers += " and the package safetensors"
        expect(by_package, {name: (shape, values) for name, (_, shape, values) in found.items()}, "by the package")
    except ImportError:
        pass
    print(f"{len(found)} tensors agree, read by {readers}")


main()
