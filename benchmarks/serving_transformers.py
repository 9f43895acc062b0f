# SPDX-License-Identifier: Apache-2.0
"""Steps of a model in Hugging Face transformers, attn_implementation="quire" beside "sdpa":

python -m benchmarks.serving_transformers decode:8x512 prefill:1x512 mixed:8x512 [--json FILE] [--rounds 7]

A small Llama with random weights. Both sides share them, are called as `generate` calls a model (eager, with the
cache that `generate` makes: PagedCache, DynamicCache) and are measured in turns, in one process. A row is
`prefill:SEQUENCESxTOKENS`, in tokens per second of whole prompts, `decode:SEQUENCESxTOKENS`, in milliseconds per step
after prompts of so many tokens, or `mixed:…`, decode where the sequences have 1/n, 2/n … n/n of the tokens, padded on
the left. Of `rounds` turns the fastest counts: other processes only ever slow one down. Both sides are given the
same tokens, and must have the same logits. Records replace those of the same row in FILE, a JSON list.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks import machine
from benchmarks.serving_tables import ServingRow
from benchmarks.timing import NeighbourWatch

OWN, QUIRE = "sdpa", "quire"
STEPS = 8  # of a turn
# How far logits may be apart, in their own standard deviations: roundings, and no more.
CLOSE = {torch.float32: 1e-3, torch.bfloat16: 0.2, torch.float16: 0.03}


class Row(ServingRow):
    @property
    def lengths(self) -> list[int]:
        if self.kind != "mixed":
            return [self.tokens] * self.sequences
        return [self.tokens * (place + 1) // self.sequences for place in range(self.sequences)]


def shape_of(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "hidden_size": arguments.heads * 64,
        "intermediate_size": arguments.heads * 64 * 11 // 4,
        "num_hidden_layers": arguments.layers,
        "num_attention_heads": arguments.heads,
        "num_key_value_heads": arguments.heads // 4,
        "head_dim": 64,
        "vocab_size": 8192,
        "max_position_embeddings": 32768,
    }


def make_models(shape: dict[str, Any], dtype: torch.dtype) -> dict[str, torch.nn.Module]:
    """One for each side, over the same weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**shape, initializer_range=0.05, attn_implementation=OWN, eos_token_id=None)
    own = transformers.LlamaForCausalLM(config).to(dtype).eval().requires_grad_(False)
    other = copy.deepcopy(own, {id(weight): weight for weight in own.parameters()})
    other.set_attn_implementation(QUIRE)
    return {OWN: own, QUIRE: other}


class Side:
    """A model, and the sequences that it is given."""

    def __init__(self, model: torch.nn.Module, row: Row) -> None:
        self.model = model
        longest = max(row.lengths)
        draw = torch.Generator().manual_seed(1)
        self.ids = torch.randint(2, 8192, (row.sequences, longest), generator=draw)
        self.mask = (torch.arange(longest) >= longest - torch.tensor(row.lengths)[:, None]).long()
        self.next = torch.randint(2, 8192, (row.sequences, 4096), generator=draw)
        self.tokens = sum(row.lengths)

    def prompt(self) -> float:
        """Seconds of the prompts. The cache that they leave is that of the steps to come."""
        self.cache = self._new_cache()
        self.seen = self.mask
        return self._forward(self.ids)

    def _new_cache(self) -> Any:
        if self.model.config._attn_implementation == QUIRE:
            from quire.integrations.transformers import PagedCache

            return PagedCache(self.model.config)
        return transformers.DynamicCache(config=self.model.config)

    def decode(self, steps: int) -> float:
        """Seconds of a step, the fastest of so many."""
        best = float("inf")
        for _ in range(steps):
            self.seen = torch.nn.functional.pad(self.seen, (0, 1), value=1)
            place = self.seen.shape[1] - self.mask.shape[1]
            best = min(best, self._forward(self.next[:, place - 1 : place]))
        return best

    @torch.no_grad()
    def _forward(self, ids: torch.Tensor) -> float:
        places = (self.seen.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        start = time.perf_counter()
        self.logits = self.model(
            ids, attention_mask=self.seen, position_ids=places, past_key_values=self.cache, logits_to_keep=1
        ).logits
        self.logits.argmax(-1)
        return time.perf_counter() - start


def measure(models: dict[str, torch.nn.Module], row: Row, rounds: int) -> dict[str, list[float]]:
    """Every side in turn, `rounds` times, after one that does not count."""
    sides = {name: Side(model, row) for name, model in models.items()}
    found: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side.prompt()
        side.decode(2)
    check_same(row, sides)
    for _ in range(rounds):
        for name, side in sides.items():
            value = side.tokens / side.prompt() if row.kind == "prefill" else side.decode(STEPS) * 1e3
            found[name].append(round(value, 4))
        check_same(row, sides)
    return found


def check_same(row: Row, sides: dict[str, Side]) -> None:
    own, quire = (sides[name].logits for name in (OWN, QUIRE))
    apart = ((own - quire).abs().max() / own.std()).item()
    if not apart <= CLOSE[own.dtype]:
        raise SystemExit(f"{row}: the logits of the two sides are {apart:.2g} standard deviations apart")


def best_of(row: Row, values: list[float]) -> float:
    return max(values) if row.kind == "prefill" else min(values)


def ratio(row: Row, values: dict[str, list[float]]) -> float:
    """Time with Quire over that of sdpa, of the fastest turns."""
    own, quire = (best_of(row, values[name]) for name in (OWN, QUIRE))
    return round(own / quire if row.kind == "prefill" else quire / own, 4)


def record(arguments: argparse.Namespace, row: Row, values: dict[str, list[float]], share: float) -> dict[str, Any]:
    described = machine.describe()
    return {
        "model": f"llama, {arguments.layers} layers of {arguments.heads * 64}",
        "layers": arguments.layers,
        "row": str(row),
        "unit": "tokens/s" if row.kind == "prefill" else "ms",
        "own": OWN,
        "values": values,
        "statistic": "fastest",
        "time_ratio": ratio(row, values),
        "in_turns": "one process",
        "dtype": arguments.dtype,
        "threads": torch.get_num_threads(),
        "neighbours": share,
        "device": f"{described['cpu']}, {described['cores']} cores",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "commit": machine.commit(),
        "at": machine.now(),
    }


def append(path: Path, new: dict[str, Any]) -> None:
    """Add a record, in the place of an older one of the same row."""
    before = json.loads(path.read_text()) if path.exists() else []
    same = [(old["model"], old["row"], old["dtype"], old["threads"]) for old in before]
    key = (new["model"], new["row"], new["dtype"], new["threads"])
    if key in same:
        before[same.index(key)] = new
    else:
        before.append(new)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(before, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", type=Row.parse)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=8, help="of 64 columns; a fourth of them have keys of their own")
    parser.add_argument("--threads", type=int, default=0, help="of torch and of Quire; by default all cores")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    arguments = parser.parse_args()
    import quire.integrations.transformers

    quire.integrations.transformers.register()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    models = make_models(shape_of(arguments), getattr(torch, arguments.dtype))
    for row in arguments.rows:
        with NeighbourWatch() as neighbours, quire.using(num_threads=arguments.threads):
            values = measure(models, row, arguments.rounds)
        best = {name: best_of(row, found) for name, found in values.items()}
        print(f"{row}: {best}, time of quire / own {ratio(row, values)}", flush=True)
        if arguments.json:
            append(arguments.json, record(arguments, row, values, neighbours.share))


if __name__ == "__main__":
    main()
