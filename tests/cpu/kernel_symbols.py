# SPDX-License-Identifier: Apache-2.0
"""Weak symbols of kernel objects stay inside their target's namespace.

The linker keeps one copy of a weak function for the whole program. If a copy compiled with AVX-512
were that one, code that runs on every machine would die on most of them.

    kernel_symbols.py NM TARGET OBJECT...
"""

import re
import subprocess
import sys

WEAK = re.compile(r"^[0-9a-f]+ [WVuwv] (?P<name>.*)$")
# A template's symbol begins with the type it returns, std::byte* say. The second pattern is a pointer to the unwinder's
# personality routine: data, the same in every object. The third is what Debian 12's nm cannot demangle: a lambda of a
# function of the target, or a template of the target over one, where g++ does not inline them.
ALLOWED = (
    r"(?:\w[\w: ]*[*&]* )?\W*(?:quire::cpu::{target}|hwy)::",
    r"DW\.ref\.__gxx_personality_v0$",
    r"_Z+N5quire3cpu{length}{target}\d",
)


def foreign_symbols(listing: str, target: str) -> list[str]:
    """The weak symbols in nm's output that do not belong to the target."""
    allowed = [re.compile(pattern.format(target=target, length=len(target))) for pattern in ALLOWED]
    names = [match["name"] for line in listing.splitlines() if (match := WEAK.match(line))]
    return [name for name in names if not any(pattern.match(name) for pattern in allowed)]


def main(nm: str, target: str, objects: list[str]) -> int:
    failures = 0
    for path in objects:
        command = [nm, "--demangle", "--defined-only", path]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for name in foreign_symbols(listing, target):
            print(f"{path}: weak symbol outside quire::cpu::{target}: {name}")
            failures += 1
    print(f"{len(objects)} objects of {target}, {failures} foreign weak symbols")
    return 1 if failures or not objects else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
