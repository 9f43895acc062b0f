# SPDX-License-Identifier: Apache-2.0
"""The binary interface of include/quire/c against tests/c/abi.txt: sizes, offsets, numbers, functions, symbols.

    abi.py CC NM INCLUDE LIBRARY LIST            fails where the list, the headers and the library differ
    abi.py CC NM INCLUDE LIBRARY LIST --write    writes the list; only additions while the version is the same
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from c_header import Interface, read_interface

HEAD = "# The binary interface of include/quire/c, on 64-bit machines. Written by tests/c/abi.py --write.\n"
VERSION = "QUIRE_C_ABI_VERSION"


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def measure(cc: str, include: Path, interface: Interface) -> dict[str, int]:
    """sizeof, offsetof and enumerators, as the C compiler has them."""
    wanted = list(interface.enumerators)
    for struct, fields in interface.structs.items():
        wanted.append(f"sizeof({struct})")
        for _, name in fields:
            wanted += [f"offsetof({struct}, {name})", f"sizeof((({struct}*)0)->{name})"]
    lines = "".join(f'  printf("%lld\\n", (long long)({what}));\n' for what in wanted)
    source = f'#include <stdio.h>\n#include "quire/c/quire.h"\nint main(void) {{\n{lines}  return 0;\n}}\n'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measure.c"
        path.write_text(source)
        program = str(Path(folder) / "measure")
        run(cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", str(include), str(path), "-o", program)
        return dict(zip(wanted, map(int, run(program).split())))


def gaps(interface: Interface, values: dict[str, int]) -> list[str]:
    """Bytes of no field: a field that is added there later would be read from what older programs never set."""
    found = []
    for struct, fields in interface.structs.items():
        end = 0
        for _, name in fields:
            offset = values[f"offsetof({struct}, {name})"]
            if offset != end:
                found.append(f"{struct}: {offset - end} bytes before '{name}' belong to no field")
            end = offset + values[f"sizeof((({struct}*)0)->{name})"]
        if end != values[f"sizeof({struct})"]:
            found.append(f"{struct}: the last bytes belong to no field")
        if fields[0] != ("size_t", "struct_size"):
            found.append(f"{struct}: does not begin with struct_size")
    return found


def describe(interface: Interface, values: dict[str, int]) -> list[str]:
    lines = [f"version {values[VERSION]}"]
    for name in interface.enumerators:
        if name != VERSION:
            lines.append(f"enumerator {name} {values[name]}")
    for struct, fields in sorted(interface.structs.items()):
        lines.append(f"size {struct} {values[f'sizeof({struct})']}")
        lines += [f"field {struct} {values[f'offsetof({struct}, {name})']} {name}: {kind}" for kind, name in fields]
    lines += [f"function {text}" for _, text in sorted(interface.functions.items())]
    return lines


def symbol_differences(listing: str, interface: Interface, version: int) -> list[str]:
    """nm -D --defined-only of the library against the functions of the headers."""
    names = {line.split()[2] for line in listing.splitlines() if len(line.split()) == 3}
    shown = {name for name in names if name.startswith("quire_")}
    declared = {f"{name}@@QUIRE_C_{version}" for name in interface.functions}
    return [f"{name}: declared and not exported" for name in sorted(declared - shown)] + [
        f"{name}: exported and not declared" for name in sorted(shown - declared)
    ]


def broken_promises(old: list[str], new: list[str]) -> list[str]:
    """What a new list lacks of one with the same version. Sizes may grow, and a reserved field may get a name."""
    if not old or old[0] != new[0]:
        return []
    sizes = {line.split()[1]: int(line.split()[2]) for line in new if line.startswith("size ")}
    lost = []
    for line in old:
        if line.startswith("size "):
            _, struct, size = line.split()
            kept = sizes.get(struct, 0) >= int(size)
        elif match := re.fullmatch(r"(field \w+ \d+ )reserved(: \w+)", line):
            kept = any(re.fullmatch(f"{match[1]}\\w+{match[2]}", other) for other in new)
        else:
            kept = line in new
        if not kept:
            lost.append(line)
    return lost


def compare(recorded: list[str], current: list[str]) -> list[str]:
    return [f"only in the list: {line}" for line in recorded if line not in current] + [
        f"only in the headers: {line}" for line in current if line not in recorded
    ]


def main(cc: str, nm: str, include: str, library: str, list_path: str, *options: str) -> int:
    interface = read_interface(Path(include))
    values = measure(cc, Path(include), interface)
    found = gaps(interface, values)
    found += symbol_differences(run(nm, "-D", "--defined-only", library), interface, values[VERSION])
    current = describe(interface, values)
    path = Path(list_path)
    recorded = path.read_text().removeprefix(HEAD).splitlines() if path.exists() else []
    if "--write" in options:
        broken = broken_promises(recorded, current)
        found += [f"changes without a new {VERSION}: {line}" for line in broken]
        if not found:
            path.write_text(HEAD + "\n".join(current) + "\n")
    else:
        found += compare(recorded, current)
    for line in found:
        print(line)
    print(f"{len(interface.structs)} structs, {len(interface.functions)} functions, {len(found)} finding(s)")
    return 1 if found or not interface.functions else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
