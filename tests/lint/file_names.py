# SPDX-License-Identifier: Apache-2.0
"""No grab-bags: a file is named after its one main thing."""

import re
from collections.abc import Iterator
from pathlib import Path

from source_tree import list_files, run_check

GRAB_BAGS = {"util", "utils", "common", "helper", "helpers", "misc"}
# What several ops share is the one folder of that name; its own folders say what about.
SHARED_BY_OPS = ("src", "cuda", "common")


def check(root: Path) -> Iterator[str]:
    for path in list_files(root):
        parts = path.parts[3:] if path.parts[:3] == SHARED_BY_OPS else path.parts
        words = {word for part in parts for word in re.split(r"[_.\-]", part.lower())}
        for word in sorted(words & GRAB_BAGS):
            yield f"{path}: '{word}' does not say what the file is about"


if __name__ == "__main__":
    run_check(check)
