# SPDX-License-Identifier: Apache-2.0
"""libquire.so shows the C++ functions that include/quire declares, all of them, and nothing else but the C interface.

    exported_symbols.py NM READELF INCLUDE LIBRARY SONAME
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from public_functions import public_functions

# Data of the one exception type, and what its inline destructor leaves where it is not hidden.
EXCEPTION = re.compile(r"(?:typeinfo|typeinfo name|vtable) for quire::Error$|quire::Error::~Error\(\)$")
# Those that tests/c/abi.py holds against the C headers.
C_SYMBOL = re.compile(r"quire_\w+@@QUIRE_C_\d+$")
# Libraries that every program has; anything else would be one more for a user to install.
SYSTEM = re.compile(r"lib(?:c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.\d+$|ld-linux.*")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported_names(listing: str) -> set[str]:
    """The demangled symbols of nm -D, without their version; constructors have two symbols and one name."""
    symbols = (line.split(" ", 2)[2] for line in listing.splitlines() if " A " not in line)
    names = {re.sub(r"@@?QUIRE_[\d.]+$", "", symbol) for symbol in symbols}
    return {name for name in names if not C_SYMBOL.match(name)}


def function_of(symbol: str) -> str:
    """'quire::Mask::parse(std::string const&)' → 'Mask::parse'; other symbols as they are."""
    match = re.match(r"quire::((?:\w+::)?~?\w+)(?:\[abi:\w+\])?\(", symbol)
    return match[1] if match else symbol


def differences(symbols: set[str], include: Path) -> list[str]:
    functions = public_functions(include)
    found = [f"{f.header}:{f.line}: {f.name} is not marked QUIRE_API" for f in functions if not f.exported]
    declared = Counter(f.name for f in functions)
    shown = Counter(function_of(symbol) for symbol in symbols if not EXCEPTION.match(symbol))
    found += [f"{name}: declared {declared[name]} times, exported {shown[name]} times"
              for name in sorted(declared | shown) if declared[name] != shown[name]]
    return found


def main(nm: str, readelf: str, include: str, library: str, soname: str) -> int:
    symbols = exported_names(run(nm, "-D", "--demangle", "--defined-only", library))
    found = differences(symbols, Path(include))
    dynamic = run(readelf, "--dynamic", "--wide", library)
    if f"Library soname: [{soname}]" not in dynamic:
        found.append(f"the soname is not {soname}")
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    found += [f"needs {name}" for name in needed if not SYSTEM.match(name)]
    for line in found:
        print(line)
    print(f"{len(symbols)} symbols, needs {' '.join(needed)}, {len(found)} finding(s)")
    return 1 if found or not symbols else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
