# SPDX-License-Identifier: Apache-2.0
"""vLLM's engine on CPUs with Quire's plug-in, beside vLLM's own attention: the same tokens and log-probabilities."""

from __future__ import annotations

import functools
from itertools import takewhile
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import rounded_rows
from engines import Failed, generate, mixed_job

MODELS = {
    "llama": ("QuireAttention", {}),
    "qwen3": ("QuireAttention", {}),
    # Window and softcap; layers with a window have tables of pages of their own.
    "gemma2": ("QuireAttention", {"num_gpu_blocks_override": 34}),
    # vLLM takes neither chunks nor cached prefixes of such models on the CPU, and pages of 16 alone.
    "deepseek_v3": ("QuireMLA", {"max_num_batched_tokens": 512, "block_size": 16, "num_gpu_blocks_override": 36}),
}


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory):
    """run(model, dtype, with_quire): one engine each, kept for the tests that share it."""
    folder: Path = tmp_path_factory.mktemp("engines")

    @functools.cache
    def run_once(name: str, dtype: str, with_quire: bool) -> dict[str, Any]:
        model = folder / name
        if not model.exists():
            checkpoints.write(model, name)
        job = mixed_job(model, dtype, **MODELS[name][1])
        return generate(folder / f"{name}_{dtype}_{with_quire}", job, with_quire)

    return run_once


def answers(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [answer for part in result["rounds"] for answer in part]


@pytest.mark.parametrize("name", MODELS)
def test_same_tokens(name, run):
    own, quire = run(name, "float32", False), run(name, "float32", True)
    assert quire["implementations"] == [MODELS[name][0]]
    assert MODELS[name][0] not in own["implementations"]
    for theirs, ours in zip(answers(own), answers(quire), strict=True):
        assert ours["tokens"] == theirs["tokens"]
        for part in ("logprobs", "prompt_logprobs"):
            assert ours[part] == pytest.approx(theirs[part], abs=2e-3)


@pytest.mark.parametrize("name", MODELS)
def test_what_the_job_is_for_happened(name, run):
    counters = run(name, "float32", True)["counters"]
    assert counters["vllm:num_preemptions"] > 0
    if name != "deepseek_v3":
        assert counters["vllm:prefix_cache_hits"] > 0


@pytest.mark.parametrize("name", MODELS)
def test_bf16_is_as_near_as_vllms_own(name, run):
    """Log-probabilities of prompts, and of answers as far as all chose the same tokens."""
    exact, own, quire = run(name, "float32", False), run(name, "bfloat16", False), run(name, "bfloat16", True)
    theirs, ours = [], []
    for e, t, o in zip(answers(exact), answers(own), answers(quire), strict=True):
        tokens = zip(e["tokens"], t["tokens"], o["tokens"], strict=True)
        same = len(list(takewhile(lambda step: len(set(step)) == 1, tokens)))
        for part, count in (("prompt_logprobs", None), ("logprobs", same)):
            theirs += [abs(a - b) for a, b in zip(t[part][:count], e[part][:count], strict=True)]
            ours += [abs(a - b) for a, b in zip(o[part][:count], e[part][:count], strict=True)]
    assert len(ours) > 250
    assert sum(ours) <= 1.25 * sum(theirs)
    assert max(ours) <= 2 * max(theirs)


def test_fp8_cache(tmp_path):
    """vLLM has none for Arm processors: beside transformers' model, with keys and values rounded to e4m3."""
    model = checkpoints.write(tmp_path / "model", "llama")
    job = mixed_job(model, "float32", kv_cache_dtype="fp8")
    part, prompts = generate(tmp_path / "fp8", job, True)["rounds"][-1], job["rounds"][-1]["prompts"]
    for answer, prompt in zip(part, prompts, strict=True):
        assert answer["prompt_logprobs"] == pytest.approx(rounded_rows.prompt_logprobs(model, prompt), abs=2e-3)


def test_batch_invariant(run, tmp_path):
    """One request alone and among others: the same bits."""
    job = mixed_job(checkpoints.write(tmp_path / "model", "llama"), "float32", num_gpu_blocks_override=128)
    alone = {**job, "rounds": [{**job["rounds"][0], "prompts": job["rounds"][0]["prompts"][1:2]}]}
    among = generate(tmp_path / "among", job, True)["rounds"][0][1]
    assert generate(tmp_path / "alone", alone, True)["rounds"][0][0] == among


def test_bad_configuration(tmp_path):
    """What Quire refuses ends the start, with Quire's words."""
    model = checkpoints.write(tmp_path / "model", "gemma2", attn_logit_softcapping=-5.0)
    with pytest.raises(Failed, match="quire: flash_attention: 'softcap' must be"):
        generate(tmp_path / "run", mixed_job(model, "float32"), True)


def test_tensor_parallel(run, tmp_path):
    """Two processes with half of the heads each (gloo) give the tokens of one."""
    one = run("llama", "float32", True)
    job = mixed_job(checkpoints.write(tmp_path / "model", "llama"), "float32", tensor_parallel_size=2)
    two = generate(tmp_path / "run", job, True, VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1")
    assert two["implementations"] == ["QuireAttention"]
    for a, b in zip(answers(one), answers(two), strict=True):
        assert a["tokens"] == b["tokens"]
        assert b["logprobs"] == pytest.approx(a["logprobs"], abs=2e-3)
