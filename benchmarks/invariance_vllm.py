# SPDX-License-Identifier: Apache-2.0
"""Batch invariance of a whole model in vLLM with Quire's plug-in, on one GPU:

python -m benchmarks.invariance_vllm llama v32 [--json FILE] [--others 63] [--tokens 16] [--layers 4]

One request alone, then the same request among others that come in the same step, with VLLM_BATCH_INVARIANT. Every
token of its answer and the bits of its largest logits must be the same; a model where they are not ends the program
with 1. Without the promise (--without) the same comparison is shown, to see that it can fail.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.serving_vllm import SHAPES, write_config

LARGEST = 1000  # logits of a step that are compared
PROMPT = 1500


def settings_of(model: str, folder: str, others: int) -> dict[str, Any]:
    shape = SHAPES[model]
    return {
        "model": folder,
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "dtype": "bfloat16",
        "seed": 0,
        "attention_backend": "CUSTOM",
        "kv_cache_dtype": shape.quire_cache,
        "block_size": shape.page,
        "enable_prefix_caching": False,
        "max_model_len": 4096,
        "max_num_seqs": others + 1,
        "max_num_batched_tokens": 8192,
        "max_logprobs": LARGEST,
        "logprobs_mode": "raw_logits",
        "gpu_memory_utilization": 0.5,
        "compilation_config": {
            "mode": 0,
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": [1, 8, others + 1],
        },
    }


def use_ordinary_weights() -> None:
    """vLLM's dummy weights are so small that no layer changes what it is given; norms of one and usual weights do."""
    from vllm.model_executor.model_loader import dummy_loader

    fill = dummy_loader.initialize_dummy_weights

    def fill_with_more(layer: Any, config: Any) -> None:
        fill(layer, config, low=-0.04, high=0.04)
        for weight in layer.state_dict().values():
            if weight.dim() == 1 and weight.is_floating_point():
                weight.fill_(1.0)

    dummy_loader.initialize_dummy_weights = fill_with_more


def answer(llm: Any, prompts: list[list[int]], tokens: int) -> list[tuple[int, dict[int, float]]]:
    """Token and largest logits of each step of the first prompt; the others answer too."""
    from vllm import SamplingParams

    watched = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False, logprobs=LARGEST)
    other = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    sampling = [watched] + [other] * (len(prompts) - 1)
    done = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
    first = done[0].outputs[0]
    steps = [{token: float(entry.logprob) for token, entry in step.items()} for step in first.logprobs]
    return list(zip(first.token_ids, steps, strict=True))


def compare(model: str, folder: str, arguments: argparse.Namespace) -> dict[str, Any]:
    import quire_vllm

    quire_vllm.register()
    from vllm import LLM

    use_ordinary_weights()
    llm = LLM(**settings_of(model, folder, arguments.others))
    draw = random.Random(1)
    vocabulary = llm.llm_engine.model_config.get_vocab_size()
    lengths = [PROMPT] + [draw.randrange(1, 2 * PROMPT) for _ in range(arguments.others)]
    prompts = [[draw.randrange(2, vocabulary) for _ in range(length)] for length in lengths]
    alone = answer(llm, prompts[:1], arguments.tokens)
    among = answer(llm, prompts, arguments.tokens)
    pairs = [(one, two) for (_, one), (_, two) in zip(alone, among, strict=True)]
    apart = max((abs(one[token] - two[token]) for one, two in pairs for token in one.keys() & two.keys()), default=0.0)
    return {
        "model": model,
        "layers": arguments.layers,
        "others": arguments.others,
        "tokens": arguments.tokens,
        "logits_compared": sum(len(logits) for _, logits in alone),
        "same_tokens": [token for token, _ in alone] == [token for token, _ in among],
        "same_logits": [logits for _, logits in alone] == [logits for _, logits in among],
        "first_different_step": next((step for step, (one, two) in enumerate(pairs) if one != two), None),
        "largest_difference": apart,
        "different_logits": len({value for _, logits in alone for value in logits.values()}),
    }


def child(model: str, folder: str, arguments: argparse.Namespace, link: Any) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_PLUGINS"] = "quire"
    os.environ["VLLM_BATCH_INVARIANT"] = "0" if arguments.without else "1"
    link.send(compare(model, folder, arguments))


def run(model: str, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        write_config(folder, model, arguments.layers)
        link, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=child, args=(model, folder, arguments, theirs))
        process.start()
        theirs.close()
        try:
            found = link.recv()
        except EOFError:
            sys.exit(f"{model}: the engine ended")
        process.join()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", choices=SHAPES)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--others", type=int, default=63)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--without", action="store_true", help="do not ask for batch invariance")
    arguments = parser.parse_args()
    found = [run(model, arguments) for model in arguments.models]
    for one in found:
        print(json.dumps(one), flush=True)
    if arguments.json:
        import torch
        import vllm

        from benchmarks import machine

        machine_of = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "vllm": vllm.__version__}
        named = {**machine_of, "commit": machine.commit(), "at": machine.now(), "asked": not arguments.without}
        before = json.loads(arguments.json.read_text()) if arguments.json.exists() else []
        arguments.json.write_text(json.dumps(before + [one | named for one in found], indent=1) + "\n")
    if not arguments.without and not all(one["same_tokens"] and one["same_logits"] for one in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
