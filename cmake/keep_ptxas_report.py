# SPDX-License-Identifier: Apache-2.0
"""Runs a CUDA compiler and keeps what ptxas -v says in <object>.ptxas, instead of on the screen.

Usage, as a compiler launcher: keep_ptxas_report.py [ccache] nvcc ... -o <object> ...
Everything else that the compiler says is passed on; so are its performance warnings ("(C7510) ...").
"""

import re
import subprocess
import sys
from pathlib import Path

REPORT = re.compile(r"^ptxas info\s*:|^\s+\d+ bytes stack frame,|^\s+Function properties for ")
WARNING = re.compile(r"^ptxas info\s*: \(C\d+\)")


def main(command: list[str]) -> int:
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    lines = done.stderr.splitlines(keepends=True)
    sys.stderr.writelines(line for line in lines if not REPORT.match(line) or WARNING.match(line))
    if done.returncode == 0 and "-o" in command:
        target = Path(command[command.index("-o") + 1])
        report = [line for line in lines if REPORT.match(line)]
        target.with_name(target.name + ".ptxas").write_text("".join(report))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
