# SPDX-License-Identifier: Apache-2.0
"""No absolute path of somebody's machine in the tree."""

import re
from collections.abc import Iterator
from pathlib import Path

from source_tree import list_files, run_check

# Not after a word, a dot, a closing bracket or a star: those are the tail of a relative or composed path.
MACHINE_PATH = re.compile(r"(?<![\w.})\]*~/-])/(root|work|home/\w+|Users/\w+)(?![\w-])")


def check(root: Path) -> Iterator[str]:
    for path in list_files(root):
        try:
            lines = (root / path).read_text().splitlines()
        except UnicodeDecodeError:
            continue  # a picture
        for number, line in enumerate(lines, 1):
            match = MACHINE_PATH.search(line)
            if match:
                yield f"{path}:{number}: '{match[0]}' exists only on one machine"


if __name__ == "__main__":
    run_check(check)
