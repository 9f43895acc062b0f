# SPDX-License-Identifier: Apache-2.0
"""Steps of vLLM with Quire's plug-in beside vLLM's own attention, on one GPU:

python -m benchmarks.serving_vllm llama decode:64x1000 prefill:1x1024 [--json FILE] [--rounds 3] [--layers 32]

A model of the given shape with random weights, one engine per backend in a process of its own, with the same settings.
Both are loaded side by side and measured in turns; with --one-by-one, for what does not fit into the GPU's memory twice,
the engine of one ends before that of the other starts. A row is `decode:SEQUENCESxTOKENS`, in milliseconds per step
while all sequences decode, captured as CUDA graphs, or `prefill:SEQUENCESxTOKENS`, in tokens per second from the first
request to the last first token. Records are appended to FILE, a JSON list. Quire and its plug-in are on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.serving_tables import ServingRow

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
# Few layers, and none of experts.
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_hidden_layers": 4,
    "first_k_dense_replace": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_layer_freq": 1,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 0,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "dtype": "bfloat16",
}
DEEPSEEK_SPARSE = {
    **DEEPSEEK,
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 2048,
}


@dataclass(frozen=True)
class Shape:
    """A model, vLLM's own backend for it, and the cache that each gets."""

    config: dict[str, Any]
    own: str
    own_cache: str
    quire_cache: str
    page: int
    row_bytes: int  # of a token and layer


SHAPES = {
    "llama": Shape(LLAMA, "FLASH_ATTN", "auto", "auto", 16, 4096),
    "llama_fp8": Shape(LLAMA, "FLASH_ATTN", "fp8", "fp8", 16, 2048),
    "v3": Shape(DEEPSEEK, "FLASHMLA", "auto", "auto", 64, 1152),
    "v32": Shape(DEEPSEEK_SPARSE, "FLASHMLA_SPARSE", "fp8_ds_mla", "fp8_ds_mla", 64, 656 + 132),
}


class Row(ServingRow):
    KINDS = ("decode", "prefill")

    @property
    def cached_tokens(self) -> int:
        """Tokens whose rows must fit at once; prompts alone may wait for each other."""
        alive = self.sequences if self.kind == "decode" else min(self.sequences, 8)
        return alive * (self.tokens + 1024)


def engine_settings(arguments: argparse.Namespace, with_quire: bool, model: str) -> dict[str, Any]:
    shape: Shape = SHAPES[arguments.model]
    rows: list[Row] = arguments.rows
    longest = max(row.tokens for row in rows) + 1024
    batches = sorted({row.sequences for row in rows if row.kind == "decode"} | {1})
    cached = max(row.cached_tokens for row in rows)
    return {
        "model": model,
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "dtype": "bfloat16",
        "seed": 0,
        "attention_backend": "CUSTOM" if with_quire else shape.own,
        "kv_cache_dtype": shape.quire_cache if with_quire else shape.own_cache,
        "block_size": shape.page,
        "enable_prefix_caching": False,
        "max_model_len": longest,
        "max_num_seqs": max(16, *batches),
        "max_num_batched_tokens": arguments.batched_tokens,
        "gpu_memory_utilization": 0.2,  # what must be free at the start; the other engine may be there already
        "kv_cache_memory_bytes": int(cached * shape.row_bytes * layers_of(arguments) * 1.05) + (64 << 20),
        "compilation_config": {
            "mode": 0,
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": batches,
        },
    }


def layers_of(arguments: argparse.Namespace) -> int:
    return arguments.layers or SHAPES[arguments.model].config["num_hidden_layers"]


def write_config(folder: str, model: str, layers: int) -> None:
    """The config.json of a shape with so many layers, none of experts."""
    config = {**SHAPES[model].config, "num_hidden_layers": layers}
    config |= {"first_k_dense_replace": layers} if "first_k_dense_replace" in config else {}
    (Path(folder) / "config.json").write_text(json.dumps(config))


def wait_for_device() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Engine:
    """One of vLLM's, step by step."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from vllm import LLM, SamplingParams

        self.llm = LLM(**settings).llm_engine
        self.sampling = SamplingParams
        self.vocabulary = self.llm.model_config.get_vocab_size()
        self.draw = random.Random(0)
        self.names = 0
        self.alive: list[str] = []

    def add(self, row: Row, answers: int) -> None:
        sampling = self.sampling(temperature=0.0, max_tokens=answers, ignore_eos=True, detokenize=False)
        for _ in range(row.sequences):
            prompt = [self.draw.randrange(2, self.vocabulary) for _ in range(row.tokens)]
            self.names += 1
            self.alive.append(f"r{self.names}")
            self.llm.add_request(self.alive[-1], {"prompt_token_ids": prompt}, sampling)

    def start_decoding(self, row: Row) -> None:
        """Prompts until every sequence has an answer."""
        self.add(row, 900)
        waiting = set(self.alive)
        while waiting:
            waiting -= {answer.request_id for answer in self.llm.step() if answer.outputs[0].token_ids}
        for _ in range(5):
            self.llm.step()

    def decode_ms(self, steps: int) -> float:
        wait_for_device()
        start = time.perf_counter()
        for _ in range(steps):
            self.llm.step()
        wait_for_device()
        return (time.perf_counter() - start) / steps * 1e3

    def prefill_rate(self, row: Row) -> float:
        self.add(row, 1)
        wait_for_device()
        start = time.perf_counter()
        while self.llm.has_unfinished_requests():
            self.llm.step()
        wait_for_device()
        self.alive = []
        return row.sequences * row.tokens / (time.perf_counter() - start)

    def stop(self) -> None:
        self.llm.abort_request(self.alive)
        self.alive = []
        while self.llm.has_unfinished_requests():
            self.llm.step()


def child(settings: dict[str, Any], with_quire: bool, link: Connection) -> None:
    """An engine that does what comes over the link."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_PLUGINS"] = "quire" if with_quire else "none"
    if with_quire:  # also where the plug-in is on PYTHONPATH and not installed
        import quire_vllm

        quire_vllm.register()
    engine = Engine(settings)
    link.send("ready")
    while (task := link.recv()) is not None:
        name, *given = task
        link.send(getattr(engine, name)(*given))


class Side:
    """The engine of one backend, in its process."""

    def __init__(self, arguments: argparse.Namespace, with_quire: bool, model: str) -> None:
        self.name = "quire" if with_quire else SHAPES[arguments.model].own
        self.link, theirs = multiprocessing.Pipe()
        settings = engine_settings(arguments, with_quire, model)
        spawn = multiprocessing.get_context("spawn")
        self.process = spawn.Process(target=child, args=(settings, with_quire, theirs))
        self.process.start()
        theirs.close()

    def wait(self) -> None:
        assert self.link.recv() == "ready"

    def do(self, *task: Any) -> Any:
        self.link.send(task)
        return self.link.recv()

    def end(self) -> None:
        self.link.send(None)
        self.process.join()


def measure(sides: list[Side], row: Row, rounds: int) -> dict[str, list[float]]:
    """Every side in turn, `rounds` times."""
    found: dict[str, list[float]] = {side.name: [] for side in sides}
    if row.kind == "decode":
        for side in sides:
            side.do("start_decoding", row)
    elif row.sequences * row.tokens < 100000:
        for side in sides:
            side.do("prefill_rate", row)  # the first is not counted
    steps = 20 if row.cached_tokens > 100000 else 50
    for _ in range(rounds):
        for side in sides:
            value = side.do("decode_ms", steps) if row.kind == "decode" else side.do("prefill_rate", row)
            found[side.name].append(round(value, 4))
    for side in sides:
        side.do("stop")
    return found


def run(arguments: argparse.Namespace, model: str) -> dict[Row, dict[str, list[float]]]:
    found: dict[Row, dict[str, list[float]]] = {row: {} for row in arguments.rows}
    if not arguments.one_by_one:
        sides = [Side(arguments, with_quire, model) for with_quire in (False, True)]
        for side in sides:
            side.wait()
        for row in arguments.rows:
            found[row] = measure(sides, row, arguments.rounds)
            show(arguments, row, found[row])
        for side in sides:
            side.end()
        return found
    for turn in range(2 * arguments.turns):
        side = Side(arguments, turn % 2 == 1, model)
        side.wait()
        for row in arguments.rows:
            for name, values in measure([side], row, arguments.rounds).items():
                found[row].setdefault(name, []).extend(values)
        side.end()
    for row in arguments.rows:
        show(arguments, row, found[row])
    return found


def ratio(arguments: argparse.Namespace, row: Row, values: dict[str, list[float]]) -> float:
    """Time with Quire over that of vLLM's own backend, of the medians."""
    own, quire = (statistics.median(values[name]) for name in (SHAPES[arguments.model].own, "quire"))
    return round(quire / own if row.kind == "decode" else own / quire, 4)


def show(arguments: argparse.Namespace, row: Row, values: dict[str, list[float]]) -> None:
    medians = {name: round(statistics.median(found), 3) for name, found in values.items()}
    print(f"{arguments.model} {row}: {medians}, time of quire / own {ratio(arguments, row, values)}", flush=True)


def record(arguments: argparse.Namespace, found: dict[Row, dict[str, list[float]]]) -> list[dict[str, Any]]:
    import torch
    import vllm

    from benchmarks import machine

    return [
        {
            "model": arguments.model,
            "layers": layers_of(arguments),
            "row": str(row),
            "unit": "ms" if row.kind == "decode" else "tokens/s",
            "own": SHAPES[arguments.model].own,
            "values": values,
            "time_ratio": ratio(arguments, row, values),
            "in_turns": "one by one" if arguments.one_by_one else "side by side",
            "batched_tokens": arguments.batched_tokens,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else machine.describe()["cpu"],
            "torch": torch.__version__,
            "vllm": vllm.__version__,
            "commit": machine.commit(),
            "at": machine.now(),
        }
        for row, values in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("rows", nargs="+", type=Row.parse)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=0, help="of the model; by default those of the shape")
    parser.add_argument("--batched-tokens", type=int, default=8192)
    parser.add_argument("--one-by-one", action="store_true")
    parser.add_argument("--turns", type=int, default=1, help="engines of each backend, with --one-by-one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as model:
        write_config(model, arguments.model, layers_of(arguments))
        found = run(arguments, model)
    if arguments.json:
        before = json.loads(arguments.json.read_text()) if arguments.json.exists() else []
        arguments.json.write_text(json.dumps(before + record(arguments, found), indent=1) + "\n")


if __name__ == "__main__":
    main()
