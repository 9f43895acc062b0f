# SPDX-License-Identifier: Apache-2.0
"""One engine in one process: reads a job from a file, generates, writes what came out.

python engine_process.py JOB.json RESULT.json

A job may name files that others write: it generates once `after` is there, and ends once `until` is.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def run(job: dict[str, Any]) -> dict[str, Any]:
    from vllm import LLM, SamplingParams

    engine = LLM(skip_tokenizer_init=True, enforce_eager=True, disable_log_stats=False, **job["engine"])
    wait_for(job.get("after"))
    rounds = []
    for part in job["rounds"]:
        sampling = SamplingParams(temperature=0.0, ignore_eos=True, detokenize=False, **part["sampling"])
        prompts = [{"prompt_token_ids": prompt} for prompt in part["prompts"]]
        answers = engine.generate(prompts, sampling, use_tqdm=False)
        rounds.append([_answer(answer) for answer in answers])
    counters = {metric.name: metric.value for metric in engine.get_metrics() if hasattr(metric, "value")}
    result = {"rounds": rounds, "counters": counters, "implementations": _implementations(engine)}
    if "kv_transfer_config" in job["engine"]:
        result["moved"] = engine.collective_rpc(_moved)
    return result


def wait_for(file: str | None) -> None:
    while file is not None and not Path(file).exists():
        time.sleep(0.1)


def _answer(answer: Any) -> dict[str, Any]:
    """The tokens, the log-probability of each, and those of the prompt's tokens."""
    output = answer.outputs[0]
    tokens = list(output.token_ids)
    chosen = [step[token].logprob for step, token in zip(output.logprobs, tokens, strict=True)]
    prompt = []
    if answer.prompt_logprobs is not None:
        pairs = zip(answer.prompt_logprobs[1:], answer.prompt_token_ids[1:], strict=True)
        prompt = [step[token].logprob for step, token in pairs]
    return {
        "tokens": tokens,
        "logprobs": chosen,
        "prompt_logprobs": prompt,
        "cached": answer.num_cached_tokens,
    }


def _implementations(engine: Any) -> list[str]:
    """The classes that attention ran on, as the workers say."""
    return sorted({name for found in engine.collective_rpc(_names) for name in found})


def _names(worker: Any) -> list[str]:
    layers = worker.model_runner.compilation_config.static_forward_context.values()
    return sorted({type(layer.impl).__name__ for layer in layers if hasattr(layer, "impl")})


def _moved(worker: Any) -> dict[str, int]:
    """Pages that the worker's connector wrote and read, and how many copies a page takes."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    connector = get_kv_transfer_group()
    return {"saved": connector.num_saved, "loaded": connector.num_loaded, "copies": connector.runs_per_page}


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    result, file = run(job), Path(sys.argv[2])
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(result))
    unfinished.replace(file)
    wait_for(job.get("until"))
