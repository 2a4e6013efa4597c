#!/usr/bin/env python3
"""Anchors in docs/ that point at the code: does the line still hold what the text says?

usage: course_anchors.py ROOT | --fix ROOT | --self-test

An anchor is written  `what the line holds` (`path/from/the/root.cpp:42`)  and may break across lines of the text. The line must
contain the quoted code, and no other line of that file may, so that --fix can move an anchor when code has moved. A path
with a line number but no quoted code before it is an error, and so is a folder without any anchor.
"""

import pathlib
import re
import sys
import tempfile

PLACE = re.compile(r"`([\w./+-]+\.(?:h|cpp|def|py|sh|cu)):(\d+)`")
BEFORE = re.compile(r"`([^`]+)`\s*\($")


def check(root, document, fix=False):
    """Complaints, and the text with anchors moved where `fix` can."""
    text = document.read_text(encoding="utf-8")
    name = document.relative_to(root).as_posix()
    complaints, pieces, end = [], [], 0
    for match in PLACE.finditer(text):
        path, line = match.group(1), int(match.group(2))
        here = f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {path}:{line}"
        quoted = BEFORE.search(text[:match.start()])
        file = root / path
        if not quoted:
            complaints.append(f"{here}: expected `code` ( before it, to know what the line should hold")
            continue
        if not file.is_file():
            complaints.append(f"{here}: there is no such file")
            continue
        code = " ".join(quoted.group(1).split())
        held = [at for at, content in enumerate(file.read_text(encoding="utf-8").splitlines(), 1) if code in content]
        if len(held) != 1:
            complaints.append(f"{here}: expected one line of the file to hold `{code}`, got {len(held)}: {held[:5]}")
        elif held[0] != line:
            if fix:
                pieces += [text[end:match.start()], f"`{path}:{held[0]}`"]
                end = match.end()
            else:
                complaints.append(f"{here}: `{code}` is in line {held[0]}; --fix moves the anchor")
    return complaints, "".join(pieces) + text[end:], len(PLACE.findall(text))


def run(root, fix):
    complaints, anchors = [], 0
    for document in sorted((root / "docs").rglob("*.md")):
        found, text, count = check(root, document, fix)
        complaints += found
        anchors += count
        if fix and text != document.read_text(encoding="utf-8"):
            document.write_text(text, encoding="utf-8")
            print(f"moved anchors in {document.relative_to(root)}")
    if anchors == 0:
        complaints.append("docs: expected anchors, found none")
    return complaints


def self_test():
    failures = []
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "docs").mkdir()
        (root / "a.cpp").write_text("int one;\nint two;\nvoid f() {}\nvoid g() { f(); }\n")
        document = root / "docs/d.md"

        def expect(text, words, fix=False):
            document.write_text(text)
            found = run(root, fix)
            if (words is None) != (not found) or (words and not any(words in line for line in found)):
                failures.append(f"{text!r}: expected {words!r}, got {found}")

        expect("See `int two` (`a.cpp:2`) and `void f()`\n(`a.cpp:3`).", None)
        expect("See `int two` (`a.cpp:1`).", "is in line 2")
        expect("See `int three` (`a.cpp:1`).", "expected one line")
        expect("See `f()` (`a.cpp:3`).", "expected one line")  # in two lines
        expect("See `int two` (`b.cpp:2`).", "no such file")
        expect("See `a.cpp:2`.", "to know what the line should hold")
        expect("Nothing to see.", "found none")
        expect("See `int two` (`a.cpp:1`) and `int one` (`a.cpp:9`).", None, fix=True)
        if document.read_text() != "See `int two` (`a.cpp:2`) and `int one` (`a.cpp:1`).":
            failures.append(f"--fix made {document.read_text()!r}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    arguments = [argument for argument in sys.argv[1:] if argument != "--fix"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    found = run(pathlib.Path(arguments[0]).resolve(), "--fix" in sys.argv)
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
