# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of docs/scale_out.md: what a GPU holds and sends when a model is spread over several. Nothing is measured.

    python -m benchmarks.sizing            print the tables
    python -m benchmarks.sizing --write    put them into the page
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "scale_out.md"
BEGIN, END = "<!-- begin: made by benchmarks/sizing.py: {} -->", "<!-- end: {} -->"

GPU_BYTES = 141e9  # an H200
SHARE = 0.9  # of it for weights and KV; the rest is activations, scratch, graphs and the CUDA context
GPUS = (1, 2, 4, 8, 16, 32, 64)
LSE = 4  # bytes


@dataclass(frozen=True)
class Model:
    """A decoder as its config.json says. Norms and scales of quantized weights are left out: less than 0.1 %."""

    name: str
    layers: int
    hidden: int
    inner: int  # of a dense MLP
    heads: int
    vocabulary: int
    weight_bytes: int  # of an element, embeddings apart, which have 2
    kv_heads: int = 0
    head_dim: int = 128
    # Latent attention
    q_latent: int = 0
    latent: int = 0
    nope: int = 0
    rope: int = 0
    row_bytes: int = 0  # of a latent row, and of an index key
    index_heads: int = 0
    index_dim: int = 0
    # Experts
    dense_layers: int = 0
    experts: int = 0
    shared: int = 0
    chosen: int = 0
    expert_inner: int = 0

    @property
    def is_latent(self) -> bool:
        return self.latent > 0

    @property
    def query_weights(self) -> int:
        """Of one layer: what is sharded by query heads."""
        if not self.is_latent:
            return 2 * self.hidden * self.heads * self.head_dim
        per_head = self.q_latent * (self.nope + self.rope) + self.latent * (self.nope + self.head_dim)
        index = self.q_latent * self.index_heads * self.index_dim + self.hidden * (self.index_dim + self.index_heads)
        shared = self.hidden * (self.q_latent + self.latent + self.rope)
        return self.heads * (per_head + self.head_dim * self.hidden) + shared + index

    @property
    def key_weights(self) -> int:
        """Of one layer: what is sharded by KV heads."""
        return 2 * self.hidden * self.kv_heads * self.head_dim

    @property
    def dense_weights(self) -> int:
        """Of all MLPs without experts, and of experts that every token takes, and of the routers."""
        sparse = self.layers - self.dense_layers if self.experts else 0
        dense = self.layers - sparse
        return 3 * self.hidden * (
            dense * self.inner + sparse * self.shared * self.expert_inner
        ) + sparse * self.hidden * self.experts

    @property
    def expert_weights(self) -> int:
        sparse = self.layers - self.dense_layers if self.experts else 0
        return sparse * self.experts * 3 * self.hidden * self.expert_inner

    @property
    def embeddings(self) -> int:
        return 2 * self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        return (
            self.layers * (self.query_weights + self.key_weights)
            + self.dense_weights
            + self.expert_weights
            + self.embeddings
        )

    @property
    def kv_bytes(self) -> int:
        """Of one token in one layer."""
        return self.row_bytes if self.is_latent else 2 * self.kv_heads * self.head_dim * 2


MODELS = (
    Model("Llama-3.1 8B", layers=32, hidden=4096, inner=14336, heads=32, kv_heads=8, vocabulary=128256, weight_bytes=2),
    Model(
        "Llama-3.1 70B", layers=80, hidden=8192, inner=28672, heads=64, kv_heads=8, vocabulary=128256, weight_bytes=2
    ),
    Model(
        "DeepSeek-V3.2",
        layers=61,
        hidden=7168,
        inner=18432,
        heads=128,
        vocabulary=129280,
        weight_bytes=1,
        q_latent=1536,
        latent=512,
        nope=128,
        rope=64,
        row_bytes=656 + 132,  # mla_fp8_block, and an index key with its scale
        index_heads=64,
        index_dim=128,
        dense_layers=3,
        experts=256,
        shared=1,
        chosen=8,
        expert_inner=2048,
    ),
)


# Bytes that a GPU sends for one token and one layer -------------------------------------------------------------------


def all_reduce(count: float, ranks: int) -> float:
    """A ring: a reduce-scatter and an all-gather, each (ranks - 1) / ranks of the tensor."""
    return 2 * count * (ranks - 1) / ranks


def tensor_parallel(model: Model, ranks: int) -> float:
    """The hidden row in bf16, after attention and after the MLP."""
    return 2 * all_reduce(2 * model.hidden, ranks)


def state_bytes(model: Model, columns: int) -> int:
    """One head's (out, LSE)."""
    return 2 * columns + LSE


def context_all_gather(model: Model, heads: float, ranks: int, columns: int) -> float:
    """Every rank's state of all heads to every other rank."""
    return heads * state_bytes(model, columns) * (ranks - 1)


def context_by_heads(model: Model, heads: float, ranks: int, columns: int) -> float:
    """Queries of its own heads to every rank, then of each rank's heads the state to that rank."""
    query = model.latent + model.rope if model.is_latent else model.head_dim
    own = heads / ranks
    return own * (ranks - 1) * (2 * query + state_bytes(model, columns))


def expert_parallel(model: Model, ranks: int) -> float:
    """The hidden row in fp8 with a scale per 128 columns to each chosen expert, and its answer back in bf16."""
    row = model.hidden + 4 * model.hidden // 128 + 2 * model.hidden
    return model.chosen * row * (ranks - 1) / ranks


# Sharding -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deployment:
    """A model on `gpus` GPUs: heads and MLPs over `tensor`, of which `context` share each KV head, times replicas.

    Latent attention: sequences over all GPUs (`data`), each with all of the attention's weights; experts over all.
    """

    model: Model
    gpus: int

    @property
    def tensor(self) -> int:
        return 1 if self.model.is_latent else min(self.gpus, self.model.heads)

    @property
    def kv(self) -> int:
        return min(self.tensor, self.model.kv_heads) if self.model.kv_heads else 1

    @property
    def context(self) -> int:
        return self.tensor // self.kv

    @property
    def data(self) -> int:
        return self.gpus // self.tensor

    @property
    def words(self) -> str:
        if self.model.is_latent:
            return f"DP {self.data} · EP {self.gpus}"
        parts = [("TP", self.tensor), ("CP", self.context), ("DP", self.data)]
        return " · ".join(f"{name} {count}" for name, count in parts if count > 1 or name == "TP")

    @property
    def weights(self) -> float:
        """Bytes on one GPU."""
        model = self.model
        own = model.layers * (model.query_weights / self.tensor + model.key_weights / self.kv)
        own += model.dense_weights / self.tensor
        experts = model.expert_weights / self.gpus
        return model.weight_bytes * (own + experts) + 2 * model.embeddings / self.tensor

    @property
    def kv_bytes(self) -> float:
        """Bytes on one GPU for one token of a sequence that it has a share of, all layers."""
        return self.model.layers * self.model.kv_bytes / (self.kv * self.context)

    @property
    def longest(self) -> int:
        """Tokens that the GPUs of one replica hold together: of one sequence, or of many."""
        return int((SHARE * GPU_BYTES - self.weights) // self.kv_bytes)

    @property
    def sent(self) -> float:
        """Bytes that a GPU sends for one token, all layers."""
        model, context = self.model, self.context
        if model.is_latent:
            return (model.layers - model.dense_layers) * expert_parallel(model, self.gpus)
        group = model.heads / self.kv  # query heads of the ranks that share KV heads
        layer = tensor_parallel(model, self.tensor) + context_by_heads(model, group, context, model.head_dim)
        return model.layers * layer


# Tables ---------------------------------------------------------------------------------------------------------------


def sizing_table() -> str:
    lines = [
        "| model | GPUs | sharding | weights per GPU, GB | KV per token and GPU, bytes | tokens of one replica"
        " | tokens of all | sent per GPU and token, KB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model in MODELS:
        for gpus in GPUS:
            on = Deployment(model, gpus)
            start = f"| {model.name} | {gpus} | {on.words} | {on.weights / 1e9:.1f} | {on.kv_bytes:.0f} |"
            if on.longest <= 0:
                lines.append(f"{start} does not fit | | |")
            else:
                lines.append(f"{start} {_count(on.longest)} | {_count(on.longest * on.data)} | {on.sent / 1e3:.1f} |")
    return "\n".join(lines)


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def exchange_table(ranks: int = 8) -> str:
    lines = [
        f"| bytes per token and layer, {ranks} ranks | " + " | ".join(model.name for model in MODELS) + " |",
        "|---|" + "---|" * len(MODELS),
    ]

    def row(name: str, numbers: list[float | None]) -> None:
        cells = ["–" if number is None else f"{number:.0f}" for number in numbers]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")

    row("tensor parallel: two all-reduces", [tensor_parallel(m, ranks) for m in MODELS])
    everything = [(m, m.heads, ranks, m.head_dim) for m in MODELS]
    row("context parallel, all-gather of (out, LSE)", [context_all_gather(*e) for e in everything])
    row("context parallel, by heads: queries, then (out, LSE)", [context_by_heads(*e) for e in everything])
    row("… the same with latents in place of values", [
        context_by_heads(m, m.heads, ranks, m.latent) if m.is_latent else None for m in MODELS
    ])
    row("expert parallel", [expert_parallel(m, ranks) if m.experts else None for m in MODELS])
    row("pipeline: a stage's boundary, not a layer's", [2.0 * m.hidden for m in MODELS])
    row("pages by a connector, once per prompt token", [float(m.kv_bytes) for m in MODELS])
    return "\n".join(lines)


def parameter_table() -> str:
    lines = ["| model | parameters, 10⁹ | KV per token, bytes, all layers |", "|---|---|---|"]
    lines += [f"| {m.name} | {m.parameters / 1e9:.2f} | {m.layers * m.kv_bytes} |" for m in MODELS]
    return "\n".join(lines)


TABLES = {"parameters": parameter_table, "exchange": exchange_table, "sizing": sizing_table}


def with_tables(document: str) -> str:
    for name, table in TABLES.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, rest = document.split(begin)
        document = f"{before}{begin}\n{table()}\n{end}{rest.split(end, 1)[1]}"
    return document


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scale_out.md")
    if parser.parse_args().write:
        PAGE.write_text(with_tables(PAGE.read_text()))
    else:
        print("\n\n".join(table() for table in TABLES.values()))
