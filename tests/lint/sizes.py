# SPDX-License-Identifier: Apache-2.0
"""Files and functions stay small enough to be read in one go."""

from collections.abc import Iterator
from pathlib import Path

from cpp_functions import find_functions
from source_tree import list_cpp_files, run_check

MAX_FILE_LINES = 400
MAX_PUBLIC_HEADER_LINES = 150
MAX_FUNCTION_LINES = 60


def check(root: Path) -> Iterator[str]:
    for path in list_cpp_files(root, "include", "src", "tools", "bindings"):
        text = (root / path).read_text()
        limit = MAX_PUBLIC_HEADER_LINES if path.parts[0] == "include" else MAX_FILE_LINES
        num_lines = len(text.splitlines())
        if num_lines > limit:
            yield f"{path}: {num_lines} lines, the limit is {limit}"
        for function in find_functions(text):
            if function.num_lines > MAX_FUNCTION_LINES:
                yield (
                    f"{path}:{function.first_line}: {function.name} has {function.num_lines} lines,"
                    f" the limit is {MAX_FUNCTION_LINES}"
                )


if __name__ == "__main__":
    run_check(check)
