# SPDX-License-Identifier: Apache-2.0
"""Every tensor map comes from the builders of quire/tile_builders.h: nothing else fills in a TileDescriptor, and one
place encodes it."""

import re
from collections.abc import Iterator
from pathlib import Path

from cuda_house import strip_comments
from source_tree import list_cpp_files, run_check

BUILDERS = "src/core/tile_builders.cpp"
ENCODER = "src/cuda/common/runtime/tensor_map.cpp"

# An empty descriptor, or one in braces: a copy of what a builder returned is neither.
MADE = re.compile(
    r"(?<!struct )(?<!QUIRE_API )\bTileDescriptor(?:\s+\w+\s*(?:;|\{|=\s*\{)|\s*\{|\s*\(\s*\))"
)
FIELD = re.compile(r"(?:\w+|\]|\))\.(?:dims|strides_bytes|box|element_strides)\s*(?:\[[^\]]*\]\s*)?[-+*/]?=(?!=)")
ENCODED = re.compile(r"cuTensorMapEncode\w*")


def find(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    for match in pattern.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split())


def check(root: Path) -> Iterator[str]:
    for path in list_cpp_files(root, "include", "src", "tools", "bindings", "examples"):
        name = path.as_posix()
        text = strip_comments((root / path).read_text())
        if name != BUILDERS:
            for line, found in find(MADE, text):
                yield f"{name}:{line}: '{found}': a TileDescriptor is made by quire/tile_builders.h"
            for line, found in find(FIELD, text):
                yield f"{name}:{line}: '{found}': ask the builder for it (quire/tile_builders.h)"
        if name != ENCODER:
            for line, found in find(ENCODED, text):
                yield f"{name}:{line}: '{found}': tensor maps are encoded by {ENCODER}"


if __name__ == "__main__":
    run_check(check)
