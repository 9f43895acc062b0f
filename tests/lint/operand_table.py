# SPDX-License-Identifier: Apache-2.0
"""The table of docs/architecture.md that says which operand each kernel takes its K and V through.

    python3 tests/lint/operand_table.py .            compares the committed table with the sources
    python3 tests/lint/operand_table.py . --write    writes it anew

A driver or kernel states its operands by including their headers: of the host those of include/quire that define a
model of KvOperand, of the device those in src/cuda/common/paging."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cpp_functions import blank_text
from source_tree import list_cpp_files, run_check

PAGE = Path("docs/architecture.md")
BEGIN = "<!-- operands: written by tests/lint/operand_table.py -->"
END = "<!-- end -->"

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
TYPE = re.compile(r"^(?:template\s*<[^\n]*>\s*)?(?:struct|class)\s+(?:QUIRE_API\s+)?(\w+)(?=[\s:{])", re.M)
OPERAND = re.compile(r"\w*Operand|(?:Paged|Ragged|Contiguous|Gathered)\w+")
CURSOR = "PageCursor"

HOST_OPERANDS = re.compile(r"quire/\w+_operand\.h|quire/page_cursor\.h")
DEVICE_OPERANDS = "src/cuda/common/paging/"
# Parts of src/cpu that ops share, and that hold no driver.
CPU_SHARED = {"attention", "kernels", "rows", "runtime", "simd"}
# What device kernels take: addresses, pages behind tensor maps, rows of any format, rows that epilogues store.
DEVICE_MODELS = {"PagedOperand", "PageTable", "RowReader", "StoredTokens"}
# Functions of the device cursor that find the rows of a view, for kernels that take nothing but new tokens.
TOKEN_ROWS = re.compile(r"\b(?:first_row|first_scale|row_of|page_in|is_mapped)\(")
# The concept and the reference to any operand are no kinds of memory.
NO_MODELS = {"KvOperand", "KvOperandRef"}


class Sources:
    """The C++ files under src and include, and what they include of each other."""

    def __init__(self, root: Path) -> None:
        self.text = {path.as_posix(): (root / path).read_text() for path in list_cpp_files(root, "src", "include")}
        self.code = {name: blank_text(text) for name, text in self.text.items()}

    def includes(self, name: str) -> list[str]:
        found = []
        for target in INCLUDE.findall(self.text[name]):
            found += [path for path in (f"src/{target}", f"include/{target}") if path in self.text]
        return found

    def closure(self, start: list[str], folder: str, skipped: tuple[str, ...] = ()) -> set[str]:
        """Files of `folder` that the first ones include, with the .cpp of every header."""
        seen: set[str] = set()
        waiting = list(start)
        while waiting:
            name = waiting.pop()
            if name in seen or name.startswith(skipped):
                continue
            seen.add(name)
            waiting += [path for path in self.includes(name) if path.startswith(folder)]
            source = re.sub(r"\.h$", ".cpp", name)
            if source != name and source in self.text:
                waiting.append(source)
        return seen


def operands_in(names: set[str], known: set[str], sources: Sources) -> list[str]:
    """The known types that the files use; the cursor alone where they use no operand."""
    code = "\n".join(sources.code[name] for name in sorted(names))
    used = {name for name in known if re.search(rf"\b{name}\b", code)}
    return sorted(used - {CURSOR}) or sorted(used)


def types_of(names: list[str], sources: Sources) -> set[str]:
    found = {name for path in names for name in TYPE.findall(sources.code[path])}
    return {name for name in found if name == CURSOR or OPERAND.fullmatch(name)} - NO_MODELS


def cpu_rows(sources: Sources) -> Iterator[tuple[str, list[str], list[str]]]:
    headers = [path for path in sources.text if HOST_OPERANDS.fullmatch(path.removeprefix("include/"))]
    known = types_of(headers, sources)
    families = {}  # header of a family's kernels → the file with their code
    for path in sources.text:
        if path.startswith("src/cpu/kernels/"):
            families |= {name: path for name in sources.includes(path) if name.endswith("kernels.h")}
    folders = sorted({path.split("/")[2] for path in sources.text if re.match(r"src/cpu/\w+/", path)} - CPU_SHARED)
    for folder in folders:
        own = [path for path in sources.text if path.startswith(f"src/cpu/{folder}/")]
        reached = sources.closure(own, "src/cpu/", ("src/cpu/runtime/", "src/cpu/kernels/"))
        kernels = sorted({Path(families[path]).stem for path in reached if path in families})
        yield f"`cpu/{folder}`", kernels, operands_in(reached, known, sources)


def cuda_rows(sources: Sources) -> Iterator[tuple[str, list[str], list[str]]]:
    headers = [path for path in sources.text if path.startswith(DEVICE_OPERANDS)]
    if not headers:
        return
    known = DEVICE_MODELS & {name for path in headers for name in TYPE.findall(sources.code[path])}
    folders: dict[str, list[str]] = {}
    for path, code in sources.code.items():
        if path.startswith("src/cuda/") and "__global__" in code:
            folders.setdefault(path.rsplit("/", 1)[0].removeprefix("src/"), []).append(path)
    for folder, files in sorted(folders.items()):
        reached = sources.closure(files, "src/cuda/") - set(headers)
        kernels = sorted({Path(path).stem for path in files})
        operands = operands_in(reached, known, sources)
        if not operands and any(TOKEN_ROWS.search(sources.code[path]) for path in reached):
            operands = ["KvLayerView"]
        yield f"`{folder}`", kernels, operands


def cell(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def make_table(root: Path) -> str:
    sources = Sources(root)
    lines = ["| driver or folder | kernels | operand |", "|---|---|---|"]
    for name, kernels, operands in (*cpu_rows(sources), *cuda_rows(sources)):
        lines.append(f"| {name} | {', '.join(kernels) or '–'} | {cell(operands)} |")
    return "\n".join([BEGIN, "", *lines, "", END])


def split_page(text: str) -> tuple[str, str, str]:
    before, rest = text.split(BEGIN)
    old, after = rest.split(END, 1)
    return before, BEGIN + old + END, after


def check_table(root: Path) -> Iterator[str]:
    text = (root / PAGE).read_text()
    if text.count(BEGIN) != 1 or END not in text:
        yield f"{PAGE}: has no place for the table of operands"
    elif split_page(text)[1] != make_table(root):
        yield f"{PAGE}: the table of operands is not that of the sources: {Path(__file__).name} --write"


def check_drivers(root: Path) -> Iterator[str]:
    """A driver of the CPU that opens a layer of a cache does so to make an operand of it."""
    sources = Sources(root)
    opened = re.compile(r"\bcache\.(?:key|value)\(")
    for name, _, operands in cpu_rows(sources):
        folder = f"src/{name.strip('`')}/"
        uses = [path for path in sources.code if path.startswith(folder) and opened.search(sources.code[path])]
        if uses and not operands:
            yield f"{uses[0]}: reads a layer of a cache without an operand"


def check(root: Path) -> Iterator[str]:
    yield from check_drivers(root)
    yield from check_table(root)


def write(root: Path) -> None:
    before, _, after = split_page((root / PAGE).read_text())
    (root / PAGE).write_text(before + make_table(root) + after)


if __name__ == "__main__":
    if "--write" in sys.argv[2:]:  # after the folder
        write(Path(sys.argv[1]).resolve())
    else:
        run_check(check)
