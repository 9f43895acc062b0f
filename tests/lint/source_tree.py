# SPDX-License-Identifier: Apache-2.0
"""What every lint check needs: the files of a tree and a common way to report."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

CPP_SUFFIXES = {".h", ".c", ".cpp", ".cu", ".cuh"}
_SKIPPED_FOLDERS = {".git", ".venv", "build", "dist", "__pycache__", ".pytest_cache", ".cache"}


def list_files(root: Path) -> list[Path]:
    """Paths relative to root of what git tracks or would track; all files where there is no git (a tarball)."""
    if (root / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            names = {Path(name) for name in result.stdout.split("\0") if name}
            return sorted(name for name in names if (root / name).is_file())
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
        found += [(Path(folder) / name).relative_to(root) for name in names]
    return sorted(found)


def list_cpp_files(root: Path, *folders: str) -> list[Path]:
    return [
        path
        for path in list_files(root)
        if path.suffix in CPP_SUFFIXES and path.parts[0] in folders
    ]


def run_check(check: Callable[[Path], Iterable[str]]) -> None:
    """Runs `check(root)` on the tree named by the first argument; every string it yields is a finding."""
    findings = list(check(Path(sys.argv[1]).resolve()))
    for finding in findings:
        print(finding)
    print(f"{len(findings)} finding(s)")
    sys.exit(1 if findings else 0)
