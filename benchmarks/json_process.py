# SPDX-License-Identifier: Apache-2.0
"""A program in a process of its own that answers lines of JSON with lines of JSON: peers with environments of their own."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any


class JsonProcess:
    """Its first line says what it is; then a line for each question."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | environment,
        )
        self.pid = self._process.pid
        self.first = self._read()

    def _read(self) -> dict[str, Any]:
        """`error` where it has ended."""
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"error": f"ended with status {self._process.wait()}"}

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
