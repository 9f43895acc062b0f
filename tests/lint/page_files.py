# SPDX-License-Identifier: Apache-2.0
"""Files and folders that a page names exist, so that a reader who follows a page arrives.

In backticks, by a whole path or by its end: `common/matmul/config.h`, `config.h`, `int4/`. Notebooks and the changelog
tell of the past. The op that CONTRIBUTING.md adds as an example does not exist.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from source_tree import list_files, run_check

NAMED = re.compile(r"`([\w./-]+\.(?:h|cuh|cu|cpp|c|py|cmake|md|sh|json|jsonl)|[\w/-]+/)`")
EXAMPLE = "scale_rows"


def is_kept_true(path: Path) -> bool:
    return path.suffix == ".md" and path.parts[:2] != ("docs", "notebook") and path.name != "CHANGELOG.md"


def check(root: Path) -> Iterator[str]:
    files = list_files(root)
    there = {str(path) for path in files} | {str(folder) for path in files for folder in path.parents}
    ends = {name[at + 1 :] for name in there for at in range(len(name)) if name[at] == "/"} | there
    for page in filter(is_kept_true, files):
        for number, line in enumerate((root / page).read_text().splitlines(), 1):
            for name in NAMED.findall(line):
                if name.rstrip("/") not in ends and EXAMPLE not in name:
                    yield f"{page}:{number}: '{name}' is not in the tree"


if __name__ == "__main__":
    run_check(check)
