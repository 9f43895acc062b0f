# SPDX-License-Identifier: Apache-2.0
"""PageManager beside vLLM's KVCacheManager on the same trace: hit rates, and what both cost the host.

    PYTHONPATH=build/release/python:. <python with vllm> -m benchmarks.page_manager --json FILE

Conversations of several turns that begin with one of a few system prompts, interleaved at random, over fewer pages than all
of them need; every answer is decoded token by token in batches. Both managers get the same calls in the same order and are
timed in turns; the best of several runs counts.
"""

import argparse
import json
import os
import random
import subprocess
import time
from pathlib import Path

import quire
from benchmarks import machine

PAGE = 16


def make_trace(seed, conversations, turns, batch):
    """Steps: lists of (conversation's prompt tokens, answer tokens) that are decoded together."""
    draw = random.Random(seed)
    systems = [[draw.randrange(50000) for _ in range(1024)] for _ in range(8)]
    histories = [list(draw.choice(systems)) for _ in range(conversations)]
    order = [c for c in range(conversations) for _ in range(turns)]
    draw.shuffle(order)
    steps = []
    for at in range(0, len(order), batch):
        requests = []
        for c in dict.fromkeys(order[at : at + batch]):
            prompt = histories[c] + [draw.randrange(50000) for _ in range(draw.randint(16, 400))]
            answer = [draw.randrange(50000) for _ in range(64)]
            histories[c] = prompt + answer
            requests.append((prompt, answer))
        steps.append(requests)
    return steps


class Quire:
    name = "quire"

    def __init__(self, pages):
        self.pages = quire.PageManager(pages, PAGE, reuse_partial_pages=False)

    def admit(self, prompt):
        made = self.pages.create(prompt)
        rest = len(prompt) - made.cached_tokens
        if not self.pages.extend(made.id, rest):
            raise RuntimeError("out of pages: the trace is too large")
        self.pages.advance(made.id, rest)
        return made.id, made.cached_tokens

    def step(self, sequences, tokens):
        if self.pages.step(sequences, tokens) != len(sequences):
            raise RuntimeError("out of pages: the trace is too large")
        self.pages.advance_all(sequences)

    def free(self, sequence):
        self.pages.free(sequence)


class Vllm:
    name = "vllm"

    def __init__(self, pages):
        import torch
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.request import Request

        init_none_hash(sha256)
        spec = FullAttentionSpec(block_size=PAGE, num_kv_heads=1, head_size=64, dtype=torch.bfloat16)
        config = KVCacheConfig(
            num_blocks=pages + 1,  # one is its null block
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        )
        self.manager = KVCacheManager(
            config, max_model_len=65536, scheduler_block_size=PAGE, hash_block_size=PAGE, enable_caching=True
        )
        self.hasher = get_request_block_hasher(PAGE, sha256)
        self.request, self.params = Request, SamplingParams(max_tokens=1000)
        self.count = 0

    def admit(self, prompt):
        self.count += 1
        request = self.request(str(self.count), prompt, self.params, None, block_hasher=self.hasher)
        blocks, hit, *_ = self.manager.get_computed_blocks(request)
        request.num_computed_tokens = 0
        if self.manager.allocate_slots(request, len(prompt) - hit, hit, blocks) is None:
            raise RuntimeError("out of pages: the trace is too large")
        request.num_computed_tokens = len(prompt)
        return request, hit

    def step(self, sequences, tokens):
        for request, token in zip(sequences, tokens, strict=True):
            request.append_output_token_ids(token)
            if self.manager.allocate_slots(request, 1) is None:
                raise RuntimeError("out of pages: the trace is too large")
            request.num_computed_tokens += 1

    def free(self, request):
        self.manager.free(request)


def run(manager, trace):
    """Seconds of admissions, decode steps and frees; tokens that were hit, and that were asked for."""
    seconds = {"admit": 0.0, "step": 0.0, "free": 0.0}
    counts = {"hit_tokens": 0, "prompt_tokens": 0, "sequence_steps": 0, "requests": 0}
    clock = time.perf_counter
    for requests in trace:
        live = []
        for prompt, _ in requests:
            begin = clock()
            sequence, hit = manager.admit(prompt)
            seconds["admit"] += clock() - begin
            live.append(sequence)
            counts["hit_tokens"] += hit
            counts["prompt_tokens"] += len(prompt)
        counts["requests"] += len(live)
        for tokens in zip(*(answer for _, answer in requests), strict=True):
            begin = clock()
            manager.step(live, list(tokens))
            seconds["step"] += clock() - begin
            counts["sequence_steps"] += len(live)
        for sequence in live:
            begin = clock()
            manager.free(sequence)
            seconds["free"] += clock() - begin
    return seconds, counts


def run_program(program):
    """Nanoseconds for a page or a sequence at a million pages, by row."""
    run = subprocess.run(
        [program, "--benchmark_format=json", "--benchmark_min_time=1"], capture_output=True, text=True, check=True
    )
    rows = json.loads(run.stdout)["benchmarks"]
    return {row["name"]: {k: row[k] * 1e9 for k in ("page", "sequence") if k in row} for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=160)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--pages", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", type=Path, help="bench_page_manager, whose rows are recorded too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    trace = make_trace(1, options.conversations, options.turns, options.batch)
    best = {}
    for _ in range(options.rounds):
        for kind in (Quire, Vllm):
            seconds, counts = run(kind(options.pages), trace)
            least, _ = best.get(kind.name, (seconds, counts))
            best[kind.name] = ({part: min(least[part], seconds[part]) for part in seconds}, counts)
    rows = []
    for name, (seconds, counts) in best.items():
        rows.append(
            {
                "manager": name,
                "hit_rate": counts["hit_tokens"] / counts["prompt_tokens"],
                "admit_us_per_page": seconds["admit"] / counts["prompt_tokens"] * PAGE * 1e6,
                "step_us_per_sequence": seconds["step"] / counts["sequence_steps"] * 1e6,
                "free_us_per_request": seconds["free"] / counts["requests"] * 1e6,
                "seconds": sum(seconds.values()),
            }
        )
        print(rows[-1])
    print(f"vllm / quire: {rows[1]['seconds'] / rows[0]['seconds']:.1f} in all")
    if options.json:
        import vllm

        record = {"machine": machine.describe(), "commit": machine.commit(), "when": machine.now()}
        record |= {"vllm": vllm.__version__, "rows": rows, "load": os.getloadavg()[0]}
        if options.program:
            record["program"] = run_program(options.program)
        record |= {k: v for k, v in vars(options).items() if k not in ("json", "program")}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
