# SPDX-License-Identifier: Apache-2.0
"""The layers of a Llama-type model: one pass of a ragged batch through Quire, from token ids to logits.

Of one layer, T new tokens of all sequences in a row (x is the residual stream, float32 [T, hidden]):

    h   = rms_norm(x)
    q   = fused_qkv_matmul(h)            k and v go straight to the pages
    q   = rope(q)                        k: rotated in the pages; GGUF stores pairs (2j, 2j + 1)
    x  += linear(flash_attention(q))
    g,u = linear(rms_norm(x))            gate and up, one weight
    x  += linear(silu(g) * u)

Calls are planned once for each T (`quire.plan`) and run many times: a decode step is some hundred planned calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import quire

from llama.gguf_file import GgufFile, Tensor, refuse
from llama.planned import Call, plan_add, plan_linear, plan_rms_norm, plan_swiglu, rounding

# Types of GGUF that Quire's projections read as they are; others are turned into float32 when they are loaded.
QUANTIZED = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4", "Q4_K", "Q5_K", "Q6_K"}
MAX_INT8_TOKENS = 8  # of a pass, where int8 and exact products are mixed
MAX_PLANNED = 64  # numbers of tokens whose calls are kept


@dataclass(frozen=True)
class LlamaConfig:
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    epsilon: float
    rope_base: float

    @classmethod
    def of(cls, file: GgufFile) -> LlamaConfig:
        """From the metadata. Bounds only keep arithmetic sane: sizes are held against the tensors' own."""
        architecture = file.string("general.architecture")
        if architecture != "llama":
            refuse(file.path, "general.architecture", "'llama'", repr(architecture))
        if file.string("llama.rope.scaling.type", "none") != "none":
            refuse(file.path, "llama.rope.scaling.type", "'none'", repr(file.metadata["llama.rope.scaling.type"]))
        if file.metadata.get("llama.expert_count", 0) != 0:
            refuse(file.path, "llama.expert_count", "0: a model without experts", file.metadata["llama.expert_count"])
        heads = file.number("llama.attention.head_count", 1, 1024)
        hidden = file.number("llama.embedding_length", heads, 1 << 20)
        head_dim = file.number("llama.attention.key_length", 2, 1024, default=hidden // heads)
        rope_dim = file.number("llama.rope.dimension_count", 2, 1024, default=head_dim)
        if rope_dim != head_dim or head_dim % 2:
            refuse(file.path, "llama.rope.dimension_count", f"{head_dim}, all columns of a head, and even", rope_dim)
        kv_heads = file.number("llama.attention.head_count_kv", 1, heads, default=heads)
        if heads % kv_heads:
            refuse(file.path, "llama.attention.head_count_kv", f"a divisor of {heads}", kv_heads)
        return cls(
            layers=file.number("llama.block_count", 1, 1024),
            hidden=hidden,
            ffn=file.number("llama.feed_forward_length", 1, 1 << 22),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocabulary=len(file.strings("tokenizer.ggml.tokens")),
            context=file.number("llama.context_length", 1, 1 << 31),
            epsilon=file.number("llama.attention.layer_norm_rms_epsilon", 0.0, 1.0),
            rope_base=file.number("llama.rope.freq_base", 1.0, 1e12, default=10000.0),
        )


def pack(*tensors: Tensor) -> quire.PackedWeight:
    """Rows of one or more weights of the same type, in the order in which the kernels read them."""
    name = tensors[0].type.name
    if name in QUANTIZED:
        blocks = np.concatenate([tensor.data for tensor in tensors])
        return quire.pack_weight(blocks, quant=quire.Quant(name.lower()))
    return quire.pack_weight(np.concatenate([tensor.floats() for tensor in tensors]))


def vector(tensor: Tensor) -> np.ndarray:
    return np.array(tensor.floats().reshape(-1))


class LlamaLayer:
    """Weights of one layer. Projections of the same input are one weight where their types are the same."""

    def __init__(self, file: GgufFile, config: LlamaConfig, index: int) -> None:
        c, prefix = config, f"blk.{index}."
        q_dim, kv_dim = c.heads * c.head_dim, c.kv_heads * c.head_dim

        def tensor(name: str, *shape: int) -> Tensor:
            return file.tensor(f"{prefix}{name}.weight", shape)

        q, k, v = (tensor(f"attn_{n}", d, c.hidden) for n, d in (("q", q_dim), ("k", kv_dim), ("v", kv_dim)))
        gate, up = tensor("ffn_gate", c.ffn, c.hidden), tensor("ffn_up", c.ffn, c.hidden)
        self.index = index
        self.attention_norm = vector(tensor("attn_norm", c.hidden))
        self.ffn_norm = vector(tensor("ffn_norm", c.hidden))
        self.qkv = [pack(q, k, v)] if q.type == k.type == v.type else [pack(q), pack(k), pack(v)]
        self.out = pack(tensor("attn_output", c.hidden, q_dim))
        self.gate_up = [pack(gate, up)] if gate.type == up.type else [pack(gate), pack(up)]
        self.down = pack(tensor("ffn_down", c.hidden, c.ffn))


class Llama:
    """A model's weights.

    Parameters
    ----------
    file : GgufFile
    activations : str
        "exact"; "int8": inputs of projections are rounded to 8 bits per block of the weight, as llama.cpp does it;
        "mixed": int8 in passes of few tokens, which is faster there, and exact in others: answers depend on the batch.
    threads : int
        0: all cores that the process may use.
    """

    def __init__(self, file: GgufFile, *, activations: str = "exact", threads: int = 0) -> None:
        self.threads = threads or quire.info()["cores"]
        self.config = c = LlamaConfig.of(file)
        self._activations = activations
        self.embedding = file.tensor("token_embd.weight", (c.vocabulary, c.hidden))
        head = "output.weight" if "output.weight" in file.tensors else "token_embd.weight"  # tied where there is none
        self.head = pack(file.tensor(head, (c.vocabulary, c.hidden)))
        self.norm = vector(file.tensor("output_norm.weight", (c.hidden,)))
        self.layers = [LlamaLayer(file, c, index) for index in range(c.layers)]
        half = c.head_dim // 2
        self._turns = c.rope_base ** -(np.arange(half) / half)  # radians a position
        if "rope_freqs.weight" in file.tensors:
            self._turns /= vector(file.tensor("rope_freqs.weight", (half,)))

    def activations(self, tokens: int) -> str:
        """How a pass of so many tokens rounds the inputs of projections."""
        if self._activations == "mixed":
            return "int8" if tokens <= MAX_INT8_TOKENS else "exact"
        return self._activations

    def freqs_cis(self, length: int) -> np.ndarray:
        """cos and sin of every position and pair, float32 [length, head_dim]."""
        angles = np.outer(np.arange(length), self._turns)
        return np.stack((np.cos(angles), np.sin(angles)), axis=-1).reshape(length, -1).astype(np.float32)

    def new_cache(self, pages: int, page_size: int, rows: int, length: int, dtype: str) -> quire.PagedKVCache:
        """An empty cache of all layers with a page table of `rows` sequences of at most `length` tokens."""
        c = self.config
        blocks = np.zeros((pages, 2, c.layers, page_size, c.kv_heads, c.head_dim), dtype)
        table = np.full((rows, -(-length // page_size)), quire.NO_PAGE, np.uint32)
        return quire.PagedKVCache(blocks, np.zeros(rows, np.uint32), table)


class LlamaPass:
    """Passes of up to `max_tokens` new tokens through the layers, over one cache: buffers and planned calls."""

    def __init__(self, model: Llama, cache: quire.PagedKVCache, max_tokens: int) -> None:
        c = model.config
        self.model, self.cache, self.max_tokens = model, cache, max_tokens
        self._capacity = cache.page_table.shape[1] * cache.page_size  # tokens of a row of the page table
        self.row_offsets = np.zeros(cache.batch + 1, np.uint32)  # new tokens of each row of the page table
        self._freqs_cis = model.freqs_cis(self._capacity)
        widths = dict.fromkeys(("x", "h", "delta", "last"), c.hidden)
        widths |= dict.fromkeys(("q", "attended"), c.heads * c.head_dim)
        widths |= dict.fromkeys(("k", "v"), c.kv_heads * c.head_dim)
        widths |= {"gate_up": 2 * c.ffn, "active": c.ffn}
        self._buffers = {name: np.empty((max_tokens, width), np.float32) for name, width in widths.items()}
        self._logits = np.empty((cache.batch, c.vocabulary), np.float32)
        self._planned: dict[tuple[str, int], list[Call]] = {}

    def run(self, tokens: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Logits of the tokens at the places `wanted`, [len(wanted), vocabulary]; valid until the next pass.

        `row_offsets`, the cache's lengths and its page table say whose tokens these are. Their K and V are in the cache
        afterwards; its lengths are the caller's to advance.
        """
        x = self._buffers["x"][: len(tokens)]
        x[:] = self.model.embedding.floats(tokens)
        for call in self._calls("layers", len(tokens), self._plan_layers):
            call()
        if len(wanted) == 0:
            return self._logits[:0]
        np.take(x, wanted, axis=0, out=self._buffers["last"][: len(wanted)])
        for call in self._calls("head", len(wanted), self._plan_head):
            call()
        return self._logits[: len(wanted)]

    def _calls(self, part: str, count: int, plan: Callable[[int], list[Call]]) -> list[Call]:
        key = (part, count)
        if key not in self._planned:
            if len(self._planned) >= MAX_PLANNED:
                del self._planned[next(iter(self._planned))]
            with quire.using(num_threads=self.model.threads), self._longest(count):
                self._planned[key] = plan(count)
        return self._planned[key]

    @contextmanager
    def _longest(self, count: int) -> Iterator[None]:
        """Lengths as they may become at most: a plan serves those that it was made for, and shorter ones."""
        lengths, kept = self.cache.cache_lengths, self.cache.cache_lengths.copy()
        kept_offsets = self.row_offsets.copy()
        rows = np.arange(len(lengths))
        new = np.clip(count - self._capacity * rows, 0, self._capacity)  # rows are filled one after the other
        lengths[:] = self._capacity - new
        self.row_offsets[1:] = np.cumsum(new)
        try:
            yield
        finally:
            lengths[:], self.row_offsets[:] = kept, kept_offsets

    def _plan_head(self, count: int) -> list[Call]:
        last, h, model = self._buffers["last"][:count], self._buffers["h"][:count], self.model
        return [
            plan_rms_norm(last, model.norm, model.config.epsilon, out=h),
            plan_linear(h, model.head, model.activations(count), out=self._logits[:count]),
        ]

    def _plan_layers(self, count: int) -> list[Call]:
        buffers = {name: buffer[:count] for name, buffer in self._buffers.items()}
        return [call for layer in self.model.layers for call in self._plan_layer(layer, buffers)]

    def _plan_layer(self, layer: LlamaLayer, b: dict[str, np.ndarray]) -> list[Call]:
        c, act = self.model.config, self.model.activations(len(b["x"]))
        where = self.row_offsets, self.cache, layer.index
        q, attended = (b[name].reshape(-1, c.heads, c.head_dim) for name in ("q", "attended"))
        gate, up = b["gate_up"][:, : c.ffn], b["gate_up"][:, c.ffn :]
        x, h, delta = b["x"], b["h"], b["delta"]
        calls = [plan_rms_norm(x, layer.attention_norm, c.epsilon, out=h)]
        if len(layer.qkv) == 1:
            weight, options = layer.qkv[0], {"activations": rounding(layer.qkv[0], act), "out": b["q"]}
            calls.append(quire.plan("fused_qkv_matmul", h, where[0], weight, *where[1:], **options))
        else:
            calls += [plan_linear(h, w, act, out=b[name]) for w, name in zip(layer.qkv, "qkv", strict=True)]
            k, v = (b[name].reshape(-1, c.kv_heads, c.head_dim) for name in "kv")
            calls.append(quire.plan("store", k, *where, value=v))
        calls += [
            quire.plan("rope", q, *where, freqs_cis=self._freqs_cis, interleaved=True, out=q),
            quire.plan("flash_attention", q, *where, mask="causal", out=attended),
            plan_linear(b["attended"], layer.out, act, out=delta),
            plan_add(x, delta),
            plan_rms_norm(x, layer.ffn_norm, c.epsilon, out=h),
        ]
        outs = [b["gate_up"]] if len(layer.gate_up) == 1 else [gate, up]
        calls += [plan_linear(h, w, act, out=out) for w, out in zip(layer.gate_up, outs, strict=True)]
        return [
            *calls,
            plan_swiglu(gate, up, out=b["active"], threads=self.model.threads),
            plan_linear(b["active"], layer.down, act, out=delta),
            plan_add(x, delta),
        ]
