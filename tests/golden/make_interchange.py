#!/usr/bin/env python3
"""The safetensors files that Python and Weft exchange.

usage: make_interchange.py write FILE    writes interchange.safetensors (needs safetensors and numpy)
       make_interchange.py check FILE    reads a file that Weft wrote with the same tensors, compares every value;
                                         exit code 77: the Python packages are not at hand

Both sides build the same tensors from the formulas below; safetensors_interchange_test.cpp holds their twins.
"""
import sys

try:
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
except ImportError as error:
    print(error)
    sys.exit(77)


def tensors():
    i = np.arange(24)
    return {
        "f64": (i / 7.0 - 1.5).reshape(2, 3, 4),
        "f32": (i * np.float32(0.25) - np.float32(3)).reshape(4, 6).astype(np.float32),
        "f16": (i / 8.0).astype(np.float16),
        "i64": (i * 1_000_000_007 - 5_000_000_000).astype(np.int64),
        "i32": (i * -3).astype(np.int32).reshape(24, 1),
        "u8": (i * 10).astype(np.uint8)[:7],
        "bool": (i % 3 == 0),
        "scalar": np.array(2.5, dtype=np.float32),
        "empty": np.zeros((0, 3), dtype=np.float32),
        'name "with" \\ é': np.array([1.0], dtype=np.float32),
    }


METADATA = {"format": "np", "note": 'quote " and é'}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "check"):
        sys.exit(__doc__)
    if sys.argv[1] == "write":
        save_file(tensors(), sys.argv[2], metadata=METADATA)
        return
    found = load_file(sys.argv[2])
    expected = tensors()
    with safe_open(sys.argv[2], framework="np") as file:
        assert file.metadata() == METADATA, file.metadata()
    assert found.keys() == expected.keys(), sorted(found)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype and found[name].shape == values.shape, name
        assert np.array_equal(found[name], values), name
    print(f"{len(found)} tensors agree")


main()
