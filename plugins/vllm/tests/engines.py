# SPDX-License-Identifier: Apache-2.0
"""Engines in processes of their own, with Quire's plug-in or without."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MINUTES = 60.0


class Failed(Exception):
    """An engine did not start, or ended early; says what it printed."""


def environment(with_quire: bool, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "VLLM_PLUGINS": "quire" if with_quire else "none",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
        **more,
    }


def generate(folder: Path, job: dict[str, Any], with_quire: bool, **variables: str) -> dict[str, Any]:
    """Run a job (`engine_process.py`) and return its result. `folder` takes its files."""
    return finished(started(folder, job, with_quire, **variables))


def started(folder: Path, job: dict[str, Any], with_quire: bool, **variables: str) -> subprocess.Popen:
    """The process of a job; `finished` has its result."""
    folder.mkdir(parents=True, exist_ok=True)
    job_file = folder / "job.json"
    job_file.write_text(json.dumps(job))
    command = [sys.executable, str(HERE / "engine_process.py"), str(job_file), str(folder / "result.json")]
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            command, env=environment(with_quire, **variables), stdout=log, stderr=subprocess.STDOUT
        )


def finished(process: subprocess.Popen) -> dict[str, Any]:
    folder = Path(process.args[-1]).parent
    try:
        code = process.wait(10 * MINUTES)
    finally:
        process.kill()
    if code != 0:
        raise Failed((folder / "log").read_text())
    return json.loads((folder / "result.json").read_text())


def mixed_job(model: Path, dtype: str, **engine: Any) -> dict[str, Any]:
    """Prompts of several lengths at once, in chunks, with too few pages for all, and prefixes that come again."""
    draw = random.Random(0)

    def prompt(length: int) -> list[int]:
        return [draw.randrange(2, 512) for _ in range(length)]

    shared = prompt(150)
    answers = {"max_tokens": 40, "logprobs": 1}
    return {
        "engine": {
            "model": str(model),
            "dtype": dtype,
            "max_model_len": 512,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 96,
            "enable_prefix_caching": True,
            "block_size": 32,
            "num_gpu_blocks_override": 18,
            "seed": 0,
            **engine,
        },
        "rounds": [
            {"sampling": answers, "prompts": [prompt(5), prompt(120), shared + prompt(7), prompt(33), prompt(64)]},
            {"sampling": answers, "prompts": [shared + prompt(20), prompt(2), shared + prompt(3), prompt(90)]},
            {"sampling": {"max_tokens": 1, "logprobs": 1, "prompt_logprobs": 1}, "prompts": [prompt(200), prompt(31)]},
        ],
    }
