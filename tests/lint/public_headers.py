# SPDX-License-Identifier: Apache-2.0
"""quire/quire.h includes every public header, quire/c/quire.h every one of the C interface. With a compiler after the
tree, each of them also compiles alone, those of the C interface as C11 too."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from source_tree import list_cpp_files, run_check

UMBRELLA = Path("quire/quire.h")
C_UMBRELLA = Path("quire/c/quire.h")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
FLAGS = ("-Wall", "-Wextra", "-Werror", "-fsyntax-only")
CPP = ("-std=c++20", "-x", "c++")
C = ("-std=c11", "-pedantic", "-x", "c")


def list_headers(root: Path) -> list[Path]:
    """Relative to include/, as they are included."""
    return [path.relative_to("include") for path in list_cpp_files(root, "include")]


def is_c(header: Path) -> bool:
    return header.parent == C_UMBRELLA.parent


def check(root: Path) -> Iterator[str]:
    for umbrella in (UMBRELLA, C_UMBRELLA):
        path = Path("include") / umbrella
        headers = [header for header in list_headers(root) if is_c(header) == is_c(umbrella) and header != umbrella]
        included = set(INCLUDE.findall((root / path).read_text())) if headers else set()
        for header in headers:
            if header.as_posix() not in included:
                yield f"{path}: {header.as_posix()} is not included"


def check_alone(root: Path, compiler: str) -> Iterator[str]:
    """A file that includes one header and nothing else, for each of them."""

    def compile_alone(job: tuple[Path, tuple[str, ...]]) -> str:
        header, language = job
        command = [compiler, *FLAGS, *language, "-I", str(root / "include"), "-"]
        source = f'#include "{header.as_posix()}"\ntypedef int not_empty;\n'  # C wants a declaration
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        where = f"include/{header.as_posix()}: does not compile alone as {language[-1]}"
        return "" if done.returncode == 0 else f"{where}\n{done.stderr}"

    headers = list_headers(root)
    jobs = [(header, CPP) for header in headers] + [(header, C) for header in headers if is_c(header)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from filter(None, pool.map(compile_alone, jobs))


if __name__ == "__main__":
    run_check(check if len(sys.argv) < 3 else lambda root: check_alone(root, sys.argv[2]))
