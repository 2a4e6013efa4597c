#!/usr/bin/env python3
"""The safetensors files that Python and Weft exchange.

usage: make_interchange.py write FILE    writes interchange.safetensors (needs the package safetensors, and numpy)
       make_interchange.py check FILE    reads a file that Weft wrote with the same tensors: its form against the
                                         format's rules, and every value. Needs Python alone; where the package
                                         safetensors is at hand, that reads the file, too.

Both sides build the same tensors from the formulas below; safetensors_interchange_test.cpp holds their twins.
"""
import json
import math
import struct
import sys

I = range(24)
TENSORS = {  # name: (dtype, shape, values)
    "f64": ("F64", [2, 3, 4], [i / 7.0 - 1.5 for i in I]),
    "f32": ("F32", [4, 6], [i * 0.25 - 3 for i in I]),
    "f16": ("F16", [24], [i / 8.0 for i in I]),
    "i64": ("I64", [24], [i * 1_000_000_007 - 5_000_000_000 for i in I]),
    "i32": ("I32", [24, 1], [i * -3 for i in I]),
    "u8": ("U8", [7], [i * 10 for i in range(7)]),
    "bool": ("BOOL", [24], [i % 3 == 0 for i in I]),
    "scalar": ("F32", [], [2.5]),
    "empty": ("F32", [0, 3], []),
    'name "with" \\ é': ("F32", [1], [1.0]),
}
METADATA = {"format": "np", "note": 'quote " and é'}
FORMATS = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "U8": "B", "BOOL": "?"}
NUMPY = {"F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32", "U8": "uint8",
         "BOOL": "bool"}


def arrays():
    import numpy

    return {name: numpy.array(values, dtype=NUMPY[dtype]).reshape(shape)
            for name, (dtype, shape, values) in TENSORS.items()}


def unique(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"repeated keys in {keys}"
    return dict(pairs)


def expect(actual, expected, what):
    if actual != expected:
        sys.exit(f"{what}: expected {expected!r}, got {actual!r}")


def check_form_and_values(path):
    with open(path, "rb") as file:
        content = file.read()
    length, = struct.unpack_from("<Q", content)
    text, data = content[8:8 + length], content[8 + length:]
    expect(len(text), length, "bytes of the header")
    expect(text[:1], b"{", "first byte of the header")
    expect(length % 8, 0, "alignment of the data")
    header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    expect(header.pop("__metadata__", None), METADATA, "metadata")
    expect(sorted(header), sorted(TENSORS), "names")
    at = 0  # the tensors fill the data without a gap
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape, values = TENSORS[name]
        layout = "<" + FORMATS[dtype] * math.prod(shape)
        end = at + struct.calcsize(layout)
        expect(entry, {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}, name)
        expect(list(struct.unpack(layout, data[at:end])), values, f"values of {name}")
        at = end
    expect(len(data), at, "bytes of data")


def check_with_package(path):
    try:
        from safetensors import safe_open
        from safetensors.numpy import load_file
    except ImportError:
        return "Python"
    with safe_open(path, framework="np") as file:
        expect(file.metadata(), METADATA, "metadata by the package")
    found = load_file(path)
    for name, array in arrays().items():
        expect((found[name].dtype, found[name].shape), (array.dtype, array.shape), f"{name} by the package")
        expect(found[name].tolist(), array.tolist(), f"values of {name} by the package")
    return "Python and the package safetensors"


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "check"):
        sys.exit(__doc__)
    if sys.argv[1] == "write":
        from safetensors.numpy import save_file

        save_file(arrays(), sys.argv[2], metadata=METADATA)
        return
    check_form_and_values(sys.argv[2])
    print(f"{len(TENSORS)} tensors agree, read by {check_with_package(sys.argv[2])}")


main()
