# SPDX-License-Identifier: Apache-2.0
"""Page ids are read in one file on each side: everybody else asks its cursor where a token stands.

A table may be passed on (a pointer in a struct, a tensor view) and written by who makes one; reading an entry of it is
the cursor's. What counts as a table: every name that ends in page_table, every member called table, and in a file what
was set from one of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cpp_functions import blank_text
from source_tree import list_cpp_files, run_check


@dataclass(frozen=True)
class Side:
    folders: tuple[str, ...]
    cursor: str  # the file that reads


SIDES = (
    Side(
        folders=("include/quire", "src/core", "src/cpu", "src/reference", "src/ops", "tools", "bindings", "examples"),
        cursor="include/quire/page_cursor.h",
    ),
    Side(folders=("src/cuda",), cursor="src/cuda/common/paging/page_cursor.cuh"),
)

TABLE = r"\w*page_table_?"
NOT_ITS_SHAPE = r"(?!\w|\s*(?:\.|->)\s*(?:shape|strides|rank|device|dtype)\b)"
ASSIGNED = re.compile(r"\b(\w+)\s*=(?!=)")
CAST = re.compile(r"\w+_cast<[^;]*?>\(")
# Functions that find an element of a tensor: on any tensor called a table.
ELEMENT = r"(?:load|at|offset)\s*\("
# x.as<u32>(), x.view().as<u32>(), x.data(): calls that lead from a tensor to its first element.
CALLS = r"(?:\s*(?:\.|->)\s*\w+(?:<[^<>;]*>)?\(\s*\))*"


def reads_of(names: set[str]) -> re.Pattern[str]:
    known = "|".join(sorted(re.escape(name) for name in names))
    name = rf"(?:\b(?:{TABLE}{'|' + known if known else ''})\b|(?:\.|->)table\b|\b\w*table(?=\.as<))"
    return re.compile(rf"{name}(?:{CALLS}\s*(?P<index>[\[+])(?!\+)|\s*(?:\.|->)\s*{ELEMENT})")


def aliases_of(code: str) -> set[str]:
    """Names that are set from a table itself: not from its shape, nor from a call that takes it."""
    names = set()
    for match in ASSIGNED.finditer(code):
        depth, plain = 0, ""
        for char in CAST.sub(" ", code[match.end() : match.end() + 400]):
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(char, 0)
            if depth < 0 or (depth == 0 and char in ";,"):
                break
            plain += char if depth == 0 else " "
        if re.search(rf"\b{TABLE}{NOT_ITS_SHAPE}", plain) and not re.fullmatch(TABLE, match[1]):
            names.add(match[1])
    return names


def is_written(code: str, bracket: int) -> bool:
    """Whether an assignment follows the index that opens at `bracket`."""
    depth = 0
    for offset in range(bracket, len(code)):
        depth += {"[": 1, "]": -1}.get(code[offset], 0)
        if depth == 0:
            return re.match(r"\s*=(?!=)", code[offset + 1 :]) is not None
    return False


def find_reads(text: str) -> Iterator[tuple[int, str]]:
    """Lines where an entry of a page table is read, and how."""
    code = blank_text(text)
    for match in reads_of(aliases_of(code)).finditer(code):
        if match["index"] == "[" and is_written(code, match.end() - 1):
            continue
        yield code.count("\n", 0, match.start()) + 1, re.sub(r"\s+", " ", match[0]).strip()


def check(root: Path) -> Iterator[str]:
    for path in list_cpp_files(root, *{folder.split("/")[0] for side in SIDES for folder in side.folders}):
        name = path.as_posix()
        for side in SIDES:
            if name == side.cursor or not name.startswith(tuple(folder + "/" for folder in side.folders)):
                continue
            for line, found in find_reads((root / path).read_text()):
                yield f"{path}:{line}: '{found}' reads a page id: ask {side.cursor}"


if __name__ == "__main__":
    run_check(check)
