# SPDX-License-Identifier: Apache-2.0
"""Finds function bodies in clang-formatted C++ by matching braces; no parser, no false certainty."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLANKED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_NOT_A_FUNCTION = re.compile(r"^(namespace|class|struct|enum|union|extern|concept|export)\b")
_CONTROL = re.compile(r"^(else\b.*|if|for|while|switch|do|try|catch)\b")
_TEMPLATE = re.compile(r"^template\s*<[^{}]*?>\s*(requires\b[^{}]*?\n\s*)?")
_NAME = re.compile(r"([\w:~]+|operator\s*\S+?)\s*\(")


@dataclass(frozen=True)
class Function:
    name: str
    first_line: int
    num_lines: int  # from the first line of the signature to the closing brace


def _blank(match: re.Match[str]) -> str:
    """Keeps the lines, drops the text: braces in comments and strings do not count."""
    return re.sub(r"[^\n]", " ", match[0])


def blank_text(text: str) -> str:
    """The code of a file: spaces where comments and strings stand."""
    return _BLANKED.sub(_blank, text)


def _is_function(head: str) -> bool:
    head = head.strip()
    while (shorter := _TEMPLATE.sub("", head, count=1).strip()) != head:
        head = shorter
    if "(" not in head or head.endswith(("=", "(", ",", "return")):
        return False
    return not _NOT_A_FUNCTION.match(head) and not _CONTROL.match(head)


def find_functions(text: str) -> Iterator[Function]:
    """Outermost functions only: a lambda counts towards the function it stands in."""
    text = _DIRECTIVE.sub(_blank, blank_text(text))
    stack: list[tuple[str, int] | None] = []  # (name, offset of the signature) for a function, None for the rest
    head_start = 0
    num_parentheses = 0
    for offset, char in enumerate(text):
        if char in "()":
            num_parentheses += 1 if char == "(" else -1
        elif char == "{":
            head = text[head_start:offset]
            inside = any(entry is not None for entry in stack)
            if not inside and num_parentheses == 0 and _is_function(head):
                start = head_start + len(head) - len(head.lstrip())
                name = _NAME.search(head)
                stack.append((name[1] if name else head.strip(), start))
            else:
                stack.append(None)
            head_start = offset + 1
        elif char == "}":
            entry = stack.pop() if stack else None
            if entry is not None:
                first_line = text.count("\n", 0, entry[1]) + 1
                yield Function(entry[0], first_line, text.count("\n", entry[1], offset) + 1)
            head_start = offset + 1
        elif char == ";" and num_parentheses == 0:
            head_start = offset + 1
