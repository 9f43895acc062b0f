# SPDX-License-Identifier: Apache-2.0
"""Every source file says its licence in its first line; only a shebang may precede it."""

from collections.abc import Iterator
from pathlib import Path

from source_tree import CPP_SUFFIXES, list_files, run_check

LICENCE = "SPDX-License-Identifier: Apache-2.0"
HASH_SUFFIXES = {".py", ".sh", ".cmake"}
HASH_NAMES = {"CMakeLists.txt", "Makefile", "run"}


def expected_line(path: Path) -> str | None:
    if path.suffix in CPP_SUFFIXES:
        return f"// {LICENCE}"
    if path.suffix in HASH_SUFFIXES or path.name in HASH_NAMES or path.name.endswith(".cmake.in"):
        return f"# {LICENCE}"
    return None


def check(root: Path) -> Iterator[str]:
    for path in list_files(root):
        expected = expected_line(path)
        if expected is None:
            continue
        lines = (root / path).read_text().splitlines()
        if lines and lines[0].startswith("#!"):
            lines = lines[1:]
        if not lines or lines[0] != expected:
            yield f"{path}:1: the first line must be '{expected}'"
        elif any(line == expected for line in lines[1:]):
            yield f"{path}: the licence line stands there twice"


if __name__ == "__main__":
    run_check(check)
