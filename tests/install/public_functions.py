# SPDX-License-Identifier: Apache-2.0
"""The C++ functions that the public headers declare and the library defines: those without a body, and no templates."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*|"(?:\\.|[^"\\])*"', re.S | re.M)
TYPE = re.compile(r"\b(?P<kind>struct|class)\s+(?P<macro>QUIRE_API\s+)?(?P<name>\w+)[^;{()]*$")
NAME = re.compile(r"(?P<name>~?\w+|operator\W{1,3})\s*\(")


@dataclass(frozen=True)
class Function:
    name: str  # "Mask::parse", without the namespace
    header: Path
    line: int
    exported: bool  # it, or its class, is marked QUIRE_API


def blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def declarations(text: str, begin: int, end: int) -> Iterator[tuple[int, str, int, int]]:
    """Each declaration of a scope: where it begins, its text up to ';' or '{', and where its braces begin and end."""
    start = position = begin
    parentheses = 0
    while position < end:
        letter = text[position]
        parentheses += (letter == "(") - (letter == ")")
        if letter == "{" and parentheses == 0:
            close = position
            depth = 0
            while True:
                depth += (text[close] == "{") - (text[close] == "}")
                if depth == 0:
                    break
                close += 1
            yield start, text[start:position], position, close
            start = position = close + 1
            continue
        if letter == ";" and parentheses == 0:
            yield start, text[start:position], position, position
            start = position + 1
        position += 1


def functions_of(text: str, header: Path, begin: int, end: int, scope: str, exported: bool) -> Iterator[Function]:
    for start, head, body, close in declarations(text, begin, end):
        head = re.sub(r"\b(?:public|private|protected)\s*:", blank, head)
        if re.search(r"\btemplate\s*<", head):
            continue
        kind = TYPE.search(head)
        if head.strip().startswith("namespace "):
            yield from functions_of(text, header, body + 1, close, scope, exported)
        elif kind and body < close:
            yield from functions_of(text, header, body + 1, close, f"{scope}{kind['name']}::", bool(kind["macro"]))
        elif body == close and (name := NAME.search(head)) and "=" not in head[: name.start()]:
            if re.search(r"=\s*(?:default|delete|0)\s*$", head) or re.search(r"\b(?:using|friend)\b|\(\*", head):
                continue
            line = text.count("\n", 0, start + len(head) - len(head.lstrip())) + 1
            marked = exported or re.search(r"\bQUIRE_API\b", head) is not None
            yield Function(scope + name["name"], header, line, marked)


def public_functions(include: Path) -> list[Function]:
    found = []
    for header in sorted(include.rglob("*.h")):
        if header.parent.name == "c":  # the C interface: tests/c/abi.py
            continue
        text = COMMENT_OR_TEXT.sub(blank, header.read_text())
        found += functions_of(text, header, 0, len(text), "", False)
    return found
