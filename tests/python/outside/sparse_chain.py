# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V3.2's sparse latent attention, through quire: indexer cache in fp8, top-k, attention over chosen rows."""

from dataclasses import dataclass

import torch

import quire

from .latent_chain import LAYER, LatentChain, rotate_halves
from .page_pool import PagePool, offsets_of
from .ragged_batch import by_sequence
from .transformers_layer import TransformersLayer


@dataclass
class Indexing:
    """What the indexer saw and chose, for one call; q and k as the fp8 numbers times their scales."""

    q: torch.Tensor  # f64 [tokens, heads, dim]
    k: torch.Tensor  # f64 [tokens, dim]
    exact_q: torch.Tensor  # f32, before quantization
    exact_k: torch.Tensor
    weights: torch.Tensor  # f32 [tokens, heads], softmax scale included
    indices: torch.Tensor  # i32 [tokens, top_k]


class SparseChain(LatentChain):
    """Takes the weights of a transformers DeepseekV32Attention; index rows have pages of their own."""

    def __init__(self, attention, rotary, capacities, dtype=torch.float32, index_page_size=8, **pool):
        super().__init__(attention, rotary, capacities, dtype, **pool)
        self.indexer = self.attention.indexer
        self.index_pool = PagePool(
            capacities,
            self.indexer.head_dim,
            page_size=index_page_size,
            is_mla=True,
            dtype=torch.float8_e4m3fn,
            order="reversed",
            scale_slots=1,
        )

    @torch.no_grad()
    def run(self, lengths, counts, parts) -> tuple[torch.Tensor, Indexing]:
        x, row_offsets, cache = torch.cat(parts), offsets_of(counts), self.pool.cache(lengths)
        module, norm = self.attention, self.attention.kv_a_layernorm
        quire.store(by_sequence(module.kv_a_proj_with_mqa, x, counts)[:, None], row_offsets, cache, LAYER)
        quire.rms_norm_key(
            row_offsets,
            cache,
            LAYER,
            gamma=norm.weight.detach(),
            epsilon=norm.variance_epsilon,
            multiply_before_cast=False,
        )
        q = quire.rope(
            self.query(x, counts), row_offsets, cache, LAYER, freqs_cis=self.freqs_cis, interleaved=True
        )
        indexing = self.index(x, lengths, counts)
        raw = quire.sparse_mla(
            self.absorb(q),
            row_offsets,
            cache,
            LAYER,
            indices=indexing.indices,
            scale=module.scaling,
            latent_dim=self.latent,
        )
        return self._project(self.expand(raw), counts), indexing

    @torch.no_grad()
    def index(self, x, lengths, counts) -> Indexing:
        row_offsets, cache = offsets_of(counts), self.index_pool.cache(lengths)
        heads, dim = self.indexer.n_heads, self.indexer.head_dim
        positions = torch.cat([torch.arange(n, n + c) for n, c in zip(lengths, counts)])
        latent = self.attention.q_a_layernorm(self.attention.q_a_proj(x))
        raw_q, raw_k, norm = self.indexer.wq_b(latent).view(-1, heads, dim), self.indexer.wk(x), self.indexer.k_norm
        options = dict(freqs_cis=self.freqs_cis, power_of_two_scale=False)
        weight, bias = norm.weight.detach(), norm.bias.detach()
        quire.store_index_keys(
            raw_k, row_offsets, cache, LAYER, norm_weight=weight, norm_bias=bias, epsilon=norm.eps, **options
        )
        weights, factor = self.indexer.weights_proj(x).float(), heads**-0.5 * self.indexer.softmax_scale
        q8, q_scale = quire.quantize_index_queries(
            raw_q, row_offsets, cache, weights=weights, factor=factor, **options
        )
        indices = quire.mla_indexer(
            q8,
            q_scale,
            row_offsets,
            cache,
            LAYER,
            top_k=self.indexer.index_topk,
            mask="causal",
        )
        _, scale = quire.quantize_index_queries(raw_q, row_offsets, cache, **options)
        return Indexing(
            q=q8.double() * scale.double()[..., None],
            k=self.stored_keys(lengths, counts),
            exact_q=self.rotate_first(raw_q, positions),
            exact_k=self.rotate_first(norm(raw_k), positions),
            weights=weights * factor,
            indices=indices,
        )

    def rotate_first(self, x, positions) -> torch.Tensor:
        """The half-split rope of the first columns of x [tokens, (heads,) dim], by torch."""
        turned = rotate_halves(x[..., : self.rope], self.freqs_cis[positions])
        return torch.cat((turned, x[..., self.rope :]), dim=-1)

    def stored_keys(self, lengths, counts) -> torch.Tensor:
        """What the cache holds for the new tokens, f64 [tokens, dim]."""
        rows = []
        for sequence, (first, count) in enumerate(zip(lengths, counts)):
            for token in range(first, first + count):
                page, row = self.index_pool.place(token, sequence)
                scale = self.index_pool.scales[page, 0, LAYER, row, 0]
                rows.append(self.index_pool.blocks[page, 0, LAYER, row, 0].double() * scale.double())
        return torch.stack(rows)


class _Injected(torch.nn.Module):
    """Stands for a projection of the indexer and returns what the rope after it turns into the wanted rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows.to(x.dtype).reshape(*x.shape[:-1], -1)


class InjectedLayer(TransformersLayer):
    """transformers' layer whose indexer scores given q and k (fp8 numbers times scales) instead of its own.

    Only the projections that make them are replaced: rope, cache, ReLU, head weights, sum, mask, top-k and the
    attention are those of transformers. Records the top-k of every call.
    """

    def __init__(self, attention, rotary, num_sequences, dtype, injected=True):
        super().__init__(attention, rotary, num_sequences, dtype, rope_dtype=torch.float32)
        self.injected = injected
        if injected:
            self.attention.indexer.wq_b = _Injected()
            self.attention.indexer.k_norm = _Injected()
        self.chosen = []
        self.attention.indexer.register_forward_hook(lambda module, inputs, output: self.chosen.append(output[0]))

    def run_with(self, parts, indexing: Indexing) -> tuple[torch.Tensor, list[set[int]]]:
        """Outputs [tokens, hidden] and the visible positions that each token chose."""
        outputs, chosen, first = [], [], 0
        for sequence, x in enumerate(parts):
            rows = slice(first, first + x.shape[0])
            first += x.shape[0]
            positions = self.positions(sequence, x.shape[0])
            if self.injected:
                self._inject(positions, indexing.q[rows], indexing.k[rows])
            self.chosen.clear()
            with torch.no_grad():
                outputs.append(self._run_one(sequence, x))
            for position, picks in zip(positions.tolist(), self.chosen[0] if self.chosen else []):
                chosen.append({pick for pick in picks.tolist() if pick <= position})
        return torch.cat(outputs), chosen

    def _inject(self, positions, q, k):
        rope = self.attention.qk_rope_head_dim
        cos, sin = (angle[0, :, : rope // 2].double() for angle in self.cos_sin(positions))
        indexer = self.attention.indexer
        for module, rows in ((indexer.wq_b, q), (indexer.k_norm, k)):
            module.rows = torch.cat((_unrotate(rows[..., :rope], cos, sin), rows[..., rope:]), dim=-1)


def _unrotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """What a half-split rope turns into x [tokens, (heads,) rope]; YaRN's cos, sin [tokens, rope / 2] also stretch."""
    if x.dim() == 3:
        cos, sin = cos[:, None], sin[:, None]
    low, high = x.chunk(2, dim=-1)
    stretch = cos.square() + sin.square()
    return torch.cat(((low * cos + high * sin) / stretch, (high * cos - low * sin) / stretch), dim=-1)
