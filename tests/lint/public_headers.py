# SPDX-License-Identifier: Apache-2.0
"""quire/quire.h includes every public header. With a compiler after the tree, each of them also compiles alone."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from source_tree import list_cpp_files, run_check

UMBRELLA = Path("include/quire/quire.h")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
FLAGS = ("-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++")


def list_headers(root: Path) -> list[Path]:
    """Relative to include/, as they are included."""
    return [path.relative_to("include") for path in list_cpp_files(root, "include")]


def check(root: Path) -> Iterator[str]:
    included = set(INCLUDE.findall((root / UMBRELLA).read_text()))
    for header in list_headers(root):
        if header.as_posix() not in included and Path("include") / header != UMBRELLA:
            yield f"{UMBRELLA}: {header.as_posix()} is not included"


def check_alone(root: Path, compiler: str) -> Iterator[str]:
    """A file that includes one header and nothing else, for each of them."""

    def compile_alone(header: Path) -> str:
        command = [compiler, *FLAGS, "-I", str(root / "include"), "-"]
        source = f'#include "{header.as_posix()}"\n'
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else f"include/{header.as_posix()}: does not compile alone\n{done.stderr}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from filter(None, pool.map(compile_alone, list_headers(root)))


if __name__ == "__main__":
    run_check(check if len(sys.argv) < 3 else lambda root: check_alone(root, sys.argv[2]))
