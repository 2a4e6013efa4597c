#!/usr/bin/env python3
"""Every public operator is tested, checked: read from the headers, so that none can be forgotten.

usage: op_table.py ROOT [--print] | --self-test

The operators are the functions declared in ops/*.h and the rows of ops/elementwise.def. Each must have
  test       a call in the test of its header: tests/ops/NAME_test.cpp or NAME_*_test.cpp for ops/NAME.h
  row        if it is differentiable, a row of tests/ops/op_rows.def: gradcheck, every dtype, any strides, broadcast
             views, nothing; a row of elementwise.def gives an operator this and its test
  golden     a case of tests/golden/ops_golden_test.cpp that calls it, and, if it is differentiable, one of
             these cases with a gradient in ops.safetensors, which PyTorch computed

The tables below are the exceptions, each with its reason; an exception that is not needed is an error too.
What this cannot see is whether a test is a good one.
"""
import json
import pathlib
import re
import struct
import sys
import tempfile

# No gradient: the result does not depend on the input's values, or not smoothly anywhere.
NOT_DIFFERENTIABLE = {
    name: reason
    for reason, names in {
        "made from nothing": "zeros ones full zeros_like ones_like full_like arange linspace eye",
        "made from nothing, by chance": "rand randn randint bernoulli randperm",
        "overwrites: ends the history": "fill_ zero_ uniform_ normal_ trunc_normal_",
        "gives bool": "eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite",
        "gives indices": "argmax argmin argsort one_hot",
        "flat almost everywhere": "sign floor ceil round",
    }.items()
    for name in names.split()
}
# No value that PyTorch could give.
NOT_GOLDEN = {
    name: reason
    for reason, names in {
        "random: the numbers are Weft's own":
            "rand randn randint bernoulli randperm uniform_ normal_ trunc_normal_ dropout",
        "changes layout, not values": "contiguous channels_last",
    }.items()
    for name in names.split()
}
# The tests that run over every row.
ROW_TESTS = {
    "elementwise": ["AgreeWithTheReferenceInEveryDtype", "TakeAnyLayout", "Broadcast", "TakeEmptyAndZeroDimTensors",
                    "GradientsAgreeWithDifferences", "InPlaceEqualsOutOfPlace"],
    "op_rows": ["TakeAnyLayout", "GradientsAgreeWithDifferences", "AgreeInEveryDtype"],
}

DECLARATION = re.compile(
    r"^(?:inline\s+)?(?:const\s+)?(?:Tensor&?|ValuesIndices|std::vector<Tensor>)\s+([a-z]\w*)\s*\(", re.M)
ELEMENTWISE_ROW = re.compile(r"^WEFT_(?:UNARY|UNARY_1|UNARY_2|BINARY|COMPARE|PREDICATE)\((\w+),", re.M)
ROW = re.compile(r"^ROW\((\w+),[^\n]*(?:\n[ \t][^\n]*)*", re.M)


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def declared(root):
    """{function: stem of its public header}, but for the macros of elementwise.h."""
    found = {}
    for header in sorted((root / "ops").glob("*.h")):
        text = re.sub(r"^\s*#define(?:[^\n]*\\\n)*[^\n]*\n", "", without_comments(header.read_text()), flags=re.M)
        found |= {name: header.stem for name in DECLARATION.findall(text) if name != "operator"}
    return found


def calls(name, text):
    return re.search(rf"(?<![\w.>]){name}\s*\(", text) is not None


def rows(root):
    """Names with a row in op_rows.def whose expression calls them."""
    text = without_comments((root / "tests/ops/op_rows.def").read_text())
    return {row.group(1) for row in ROW.finditer(text) if calls(row.group(1), row.group(0)[len("ROW("):])}


def golden_cases(root):
    """{case: expression} of the test's table."""
    text = without_comments((root / "tests/golden/ops_golden_test.cpp").read_text())
    table = text[text.index("functions()"):]
    cases = {name: f"{name}(" for name in re.findall(r"^\s+(?:UNARY|BINARY)\((\w+)\)", table, re.M)}
    pattern = r"^\s+CASE\((\w+),(.*?)\)(?=,\s*$(?=\s*(?:CASE|UNARY|BINARY|\};)))"
    cases |= dict(re.findall(pattern, table, re.M | re.S))
    return cases


def golden_gradients(root):
    """Cases in ops.safetensors, and those with a gradient."""
    with open(root / "tests/golden/ops.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    names = [name.split("/") for name in header if name != "__metadata__"]
    return {case for case, _ in names}, {case for case, part in names if part.startswith("grad")}


def test_files(root, stem):
    found = [*(root / "tests/ops").glob(f"{stem}_test.cpp"), *(root / "tests/ops").glob(f"{stem}_*_test.cpp")]
    return [without_comments(file.read_text()) for file in found]


def check(root, show=False):
    operators = declared(root)
    elementwise = set(ELEMENTWISE_ROW.findall((root / "ops/elementwise.def").read_text()))
    others = rows(root)
    expressions = golden_cases(root)
    values, gradients = golden_gradients(root)
    if not operators or not elementwise:
        yield "found no operators: the headers are not written as op_table.py expects"

    for stem, names in ROW_TESTS.items():
        text = "".join(test_files(root, stem))
        for name in names:
            if not re.search(rf"TEST\(\w+, {name}\)", text):
                yield f"tests/ops/{stem}_test.cpp: no test {name}, which the rows count on"

    table = [("operator", "test", "row", "golden")]
    for name in sorted(operators.keys() | elementwise):
        smooth = name not in NOT_DIFFERENTIABLE
        cases = [case for case, text in expressions.items() if case in values and calls(name, text)]
        has = {
            "test": name in elementwise or any(calls(name, text) for text in test_files(root, operators[name])),
            "row": name in elementwise or name in others,
            "golden": any(case in gradients for case in cases) if smooth else bool(cases),
        }
        needs = {"test": True, "row": smooth, "golden": name not in NOT_GOLDEN}
        if not has["test"]:
            yield f"{name}: no test in tests/ops/{operators[name]}_test.cpp"
        if smooth and not has["row"]:
            yield f"{name}: no row in tests/ops/op_rows.def"
        if needs["golden"] and not has["golden"]:
            yield f"{name}: no golden case" + (" with a gradient" if smooth else "")
        if name in NOT_GOLDEN and has["golden"]:
            yield f"{name}: has a golden case, so it need not be in NOT_GOLDEN"
        table.append((name, *("yes" if has[what] else "no" if needed else "-" for what, needed in needs.items())))
    for name in sorted((NOT_DIFFERENTIABLE.keys() | NOT_GOLDEN.keys()) - operators.keys() - elementwise):
        yield f"{name}: an exception in op_table.py, but no operator"
    if show:
        for line in table:
            print("{:32}{:6}{:6}{}".format(*line))


# A small tree in which everything is right, and what is said when a piece of it goes missing.
SELF_TEST = {
    "ops/thing.h": "// Tensor comment(int);\nTensor smooth(const Tensor& x);\nTensor sign(const Tensor& x);\n",
    "ops/elementwise.def": "WEFT_UNARY(neg, Neg, any, -3, 3, -x)\n",
    "tests/ops/thing_test.cpp": "TEST(T, A) {\n  sign(x);\n  smooth(x);\n}\n",
    "tests/ops/op_rows.def": "ROW(smooth, ({{2}}), ({{0}}),\n    smooth(in[0])),\n",
    "tests/ops/op_rows_test.cpp": "".join(f"TEST(OpRows, {name})" for name in ROW_TESTS["op_rows"]),
    "tests/ops/elementwise_test.cpp": "".join(f"TEST(Rows, {name})" for name in ROW_TESTS["elementwise"]),
    "tests/golden/ops_golden_test.cpp": "functions() {\n    UNARY(neg),\n    CASE(smooth_two, smooth(in[0],\n"
                                        "      2)),\n    CASE(sign, sign(in[0])),\n  };\n",
}
SELF_TEST_LOSSES = [
    ("tests/ops/thing_test.cpp", "  sign(x);", "sign: no test in tests/ops/thing_test.cpp"),
    ("tests/ops/op_rows.def", "    smooth(in[0])", "smooth: no row"),
    ("tests/ops/elementwise_test.cpp", "Broadcast", "tests/ops/elementwise_test.cpp: no test Broadcast"),
    ("tests/golden/ops_golden_test.cpp", "    CASE(sign, sign(in[0])),\n", "sign: no golden case"),
    ("tests/golden/ops_golden_test.cpp", "    UNARY(neg),\n", "neg: no golden case with a gradient"),
]


def self_test():
    global NOT_DIFFERENTIABLE, NOT_GOLDEN
    NOT_DIFFERENTIABLE, NOT_GOLDEN = {"sign": "flat"}, {}
    header = json.dumps({name: {} for name in ("neg/out", "neg/grad0", "smooth_two/grad0", "sign/out")}).encode()
    for changed, lost, expected in [(None, None, None), *SELF_TEST_LOSSES]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in SELF_TEST.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                assert name != changed or lost in text, lost
                (root / name).write_text(text.replace(lost, "") if name == changed else text)
            (root / "tests/golden/ops.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
            found = list(check(root))
            if expected is None:
                assert found == [], found
            else:
                assert any(line.startswith(expected) for line in found), (expected, found)
    print("self-test passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--print"]):
        sys.exit(__doc__)
    found = list(check(pathlib.Path(sys.argv[1]), show=len(sys.argv) == 3))
    if found:
        sys.exit("\n".join(found))
    return None


if __name__ == "__main__":
    main()
