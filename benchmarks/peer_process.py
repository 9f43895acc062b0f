# SPDX-License-Identifier: Apache-2.0
"""Peers of benchmarks/cpu.py that live in a process and an environment of their own, and take turns all the same.

This file is both sides. `PeerProcess` starts `python -m MODULE` by another interpreter, asks it by lines of JSON and hands
it arrays in a file; `serve()` is what that module runs: it makes the pieces of work that are asked for, and times bursts
of them.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.json_process import JsonProcess
from benchmarks.machine import ROOT
from benchmarks.timing import burst

Arrays = Mapping[str, np.ndarray]


class PeerProcess:
    """The asking side; the other one holds the work that was asked for last. Kernels that this processor cannot run end
    it, and the next piece of work starts another."""

    def __init__(self, name: str, python: str, module: str) -> None:
        self.name = name
        self._command = [python, "-m", module]
        self._folder = tempfile.TemporaryDirectory()
        self._start()

    def _start(self) -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = JsonProcess(self._command, {"PYTHONPATH": os.pathsep.join(paths)})
        self.pid = self._process.pid
        first = self._good(self._process.first)
        self.version, self.kinds = first["version"], first["kinds"]

    def _good(self, answer: dict[str, Any]) -> dict[str, Any]:
        if "error" in answer:
            raise RuntimeError(f"{self.name} {answer['error']}")
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        return self._good(self._process.ask(request))

    def make(self, kind: str, arrays: Arrays, **options: Any) -> dict[str, PeerCalls]:
        """The contenders that the other side has for this kind of work; what it made before is forgotten."""
        if self._process.has_ended():
            self._start()
        file = Path(self._folder.name) / "arrays.npz"
        np.savez(file, **arrays)
        answer = self.ask(make=kind, file=str(file), options=options)
        for name, reason in answer["left_out"].items():
            print(f"  left out: {self.name} {name}: {reason}")
        with np.load(file) as results:
            return {f"{self.name} {name}": PeerCalls(self, name, results[name]) for name in answer["made"]}


@dataclass(frozen=True)
class PeerCalls:
    """A contender of time_in_turns()."""

    process: PeerProcess
    name: str
    result: np.ndarray  # of one call, float32

    def use_threads(self, threads: int) -> None:
        self.process.ask(threads=threads, name=self.name)

    def burst(self, seconds: float) -> list[float]:
        return self.process.ask(burst=seconds, name=self.name)["us"]


def remote_peers(
    processes: Sequence[PeerProcess], kind: str, arrays: Arrays, **options: Any
) -> dict[str, PeerCalls]:
    """What those processes that know this kind of work have for it."""
    found: dict[str, PeerCalls] = {}
    for process in processes:
        if kind in process.kinds:
            try:
                found |= process.make(kind, arrays, **options)
            except RuntimeError as reason:
                print(f"  left out: {reason}")
    return found


class Contender(Protocol):
    """On the other side: calls on one layer after another, on a number of threads."""

    def use_threads(self, threads: int) -> Sequence[Callable[[], Any]]: ...

    def result(self) -> np.ndarray: ...


# Contenders by name; each is made when it is called, so that one that cannot be made does not take the others along.
Makers = Mapping[str, Callable[[], Contender]]


class _Answers:
    def __init__(self, kinds: Mapping[str, Callable[..., Makers]]) -> None:
        self._kinds = kinds
        self._contenders: dict[str, Contender] = {}
        self._calls: dict[str, Iterator[Callable[[], Any]]] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "make" in request:
            return self._make(request["make"], request["file"], request["options"])
        name = request["name"]
        if "threads" in request:
            self._calls[name] = cycle(self._contenders[name].use_threads(request["threads"]))
            return {}
        return {"us": [round(us, 3) for us in burst(self._calls[name], request["burst"])]}

    def _make(self, kind: str, file: str, options: dict[str, Any]) -> dict[str, Any]:
        self._contenders.clear()
        self._calls.clear()
        gc.collect()
        with np.load(file) as arrays:
            makers = self._kinds[kind](dict(arrays), **options)
        results, left_out = {}, {}
        for name, make in makers.items():
            try:
                contender = make()
                contender.use_threads(1)
                results[name] = contender.result()
            except Exception as reason:  # whatever a peer throws: the asking side says why it is left out
                left_out[name] = describe(reason)
                continue
            self._contenders[name] = contender
        np.savez(file, **results)
        return {"made": list(results), "left_out": left_out}


def describe(reason: Exception) -> str:
    """What it says, in one line, or its type: some say first where they were thrown, and others last."""
    return " ".join(str(reason).split())[:300] or type(reason).__name__


def serve(load: Callable[[], tuple[str, Mapping[str, Callable[..., Makers]]]]) -> None:
    """The other side: `load` gives the version and the kinds of work, by functions of arrays and options."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the peer prints itself is no answer
    try:
        version, kinds = load()
    except Exception as reason:
        print(json.dumps({"error": f"cannot be loaded: {describe(reason)}"}), file=lines)
        return
    print(json.dumps({"version": version, "kinds": list(kinds)}), file=lines)
    answers = _Answers(kinds)
    gc.disable()  # but for the times between two pieces of work
    for line in sys.stdin:
        try:
            found = answers.answer(json.loads(line))
        except Exception as reason:  # the asking side leaves this row out, and says why
            found = {"error": describe(reason)}
        print(json.dumps(found), file=lines)
