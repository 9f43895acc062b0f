# SPDX-License-Identifier: Apache-2.0
"""What the headers of the C interface declare: structs with their fields, enumerators, functions."""

import re
from dataclasses import dataclass, field
from pathlib import Path

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
STRUCT = re.compile(r"\b(?:typedef\s+)?struct\s+(?P<name>quire_\w+)\s*\{(?P<body>[^}]*)\}")
ENUM = re.compile(r"\benum\s*\{(?P<body>[^}]*)\}\s*;")
FUNCTION = re.compile(r"\bQUIRE_C_API\s+(?P<text>[^;{]+?\b(?P<name>quire_\w+)\s*\([^;{]*\))\s*;")
FUNCTION_POINTER = re.compile(r"\(\s*\*\s*(?P<name>\w+)\s*\)\s*\(")


@dataclass
class Interface:
    structs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # name → (type, field), in order
    enumerators: list[str] = field(default_factory=list)
    functions: dict[str, str] = field(default_factory=dict)  # name → the declaration on one line


def one_line(text: str) -> str:
    """However the lines of a declaration were broken: 'quire_prepared** prepared, void (*)(void* user)'."""
    text = re.sub(r"\s*([,*])\s*", r"\1 ", " ".join(text.split()))
    return re.sub(r"\* (?=[*)])", "*", text).replace("( ", "(")


def read_field(text: str) -> tuple[str, str]:
    """'const DLTensor* q' → ('const DLTensor*', 'q'); a pointer to a function is its own type."""
    pointer = FUNCTION_POINTER.search(text)
    if pointer:
        return one_line(text.replace(pointer["name"], "", 1)), pointer["name"]
    match = re.fullmatch(r"(?P<type>.*[\s*])(?P<name>\w+)", text.strip(), re.S)
    if not match:
        raise ValueError(f"not a field: {text!r}")
    return one_line(match["type"]).strip(), match["name"]


def read_interface(include: Path) -> Interface:
    found = Interface()
    for header in sorted((include / "quire" / "c").glob("*.h")):
        text = COMMENT.sub(" ", header.read_text())
        for struct in STRUCT.finditer(text):
            fields = [part for part in struct["body"].split(";") if part.strip()]
            found.structs[struct["name"]] = [read_field(part) for part in fields]
        for enum in ENUM.finditer(text):
            found.enumerators += [part.split("=")[0].strip() for part in enum["body"].split(",") if part.strip()]
        for function in FUNCTION.finditer(text):
            found.functions[function["name"]] = one_line(function["text"])
    return found
