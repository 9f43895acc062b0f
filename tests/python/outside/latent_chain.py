# SPDX-License-Identifier: Apache-2.0
"""The latent attention of a DeepSeek-style layer, through quire's mla_prefill and mla_decode."""

import torch

import quire

from .page_pool import PagePool, offsets_of
from .ragged_batch import by_sequence
from .transformers_layer import rope_table

LAYER = 1

# How the new tokens' rows reach the cache:
#   stored    quire.store writes the raw rows, the op finishes them in place
#   fused     fused_qkv_matmul makes q and writes the raw rows (a config without q_lora)
#   given     the op gets the raw rows as `kv` and writes the finished ones
#   finished  torch normalises and rotates, quire.store writes; the op only attends
#   absorbed  as finished, and torch multiplies by w_uk and w_uv too (decode only)
WAYS = ("stored", "fused", "given", "finished")


def rotate_pairs(x: torch.Tensor, freqs: torch.Tensor) -> torch.Tensor:
    """x [tokens, (heads,) rope], freqs [tokens, rope]: complex multiplication of the pairs (2j, 2j + 1)."""
    turns = torch.view_as_complex(freqs.float().unflatten(-1, (-1, 2)))
    if x.dim() == 3:
        turns = turns[:, None]
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


def rotate_halves(x: torch.Tensor, freqs: torch.Tensor) -> torch.Tensor:
    """The same of the pairs (j, j + rope / 2)."""
    half = x.shape[-1] // 2
    order = torch.arange(x.shape[-1]).reshape(2, half).T.flatten()
    turned = rotate_pairs(x[..., order], freqs)
    return torch.cat((turned[..., 0::2], turned[..., 1::2]), dim=-1)


class LatentChain:
    """Takes the weights of a transformers module; the query projection and the output projection stay torch."""

    def __init__(self, attention, rotary, capacities, dtype=torch.float32, buffer_tokens=1024, **pool):
        self.attention = attention.to(dtype)
        self.freqs_cis = rope_table(rotary, dtype)
        self.buffer_tokens = buffer_tokens
        self.decode_tokens = 0
        self.latent, self.rope = attention.kv_lora_rank, attention.qk_rope_head_dim
        self.nope, self.heads = attention.qk_nope_head_dim, attention.num_heads
        self.pool = PagePool(capacities, self.latent + self.rope, dtype=dtype, is_mla=True, **pool)
        self.kv_b_proj = attention.kv_b_proj.weight.detach()
        self.kv_b_proj_scale = None
        self.absorbed = quire.absorb_kv_b_proj(self.kv_b_proj, heads=self.heads, nope=self.nope)
        self.last_q = None

    def prefill(self, lengths, counts, parts, way) -> torch.Tensor:
        """Outputs of the new tokens of all sequences, [tokens, hidden]."""
        cache, row_offsets = self.pool.cache(lengths), offsets_of(counts)
        q, arguments = self._prepare(torch.cat(parts), lengths, counts, cache, row_offsets, way)
        plan = quire.mla_prefill_plan(
            row_offsets, cache, LAYER, buffer_tokens=self.buffer_tokens, decode_tokens=self.decode_tokens
        )
        weights = dict(kv_b_proj=self.kv_b_proj, kv_b_proj_scale=self.kv_b_proj_scale)
        out = quire.mla_prefill(q, row_offsets, cache, LAYER, plan=plan, **weights, **arguments)
        self.last_q = q
        return self._project(out, counts)

    def decode(self, lengths, counts, parts, way) -> torch.Tensor:
        cache, row_offsets = self.pool.cache(lengths), offsets_of(counts)
        q, arguments = self._prepare(torch.cat(parts), lengths, counts, cache, row_offsets, way)
        if way != "absorbed":
            weights = dict(w_uk=self.absorbed.w_uk, w_uv=self.absorbed.w_uv)
            return self._project(quire.mla_decode(q, row_offsets, cache, LAYER, **weights, **arguments), counts)
        raw = quire.mla_decode(self.absorb(q), row_offsets, cache, LAYER, latent_dim=self.latent, **arguments)
        return self._project(self.expand(raw), counts)

    @torch.no_grad()
    def absorb(self, q: torch.Tensor) -> torch.Tensor:
        latent = torch.einsum("thn,hnl->thl", q[..., : self.nope], self._weights()[:, : self.nope])
        return torch.cat((latent, q[..., self.nope :]), dim=-1)

    @torch.no_grad()
    def expand(self, raw: torch.Tensor) -> torch.Tensor:
        return torch.einsum("thl,hvl->thv", raw, self._weights()[:, self.nope :])

    def _weights(self) -> torch.Tensor:
        return self.kv_b_proj.view(self.heads, -1, self.latent)

    @torch.no_grad()
    def _project(self, out: torch.Tensor, counts) -> torch.Tensor:
        return by_sequence(self.attention.o_proj, out.flatten(1), counts)

    @torch.no_grad()
    def query(self, x: torch.Tensor, counts) -> torch.Tensor:
        module = self.attention
        if module.q_lora_rank is None:
            q = by_sequence(module.q_proj, x, counts)
        else:
            q = by_sequence(lambda part: module.q_b_proj(module.q_a_layernorm(module.q_a_proj(part))), x, counts)
        return q.view(x.shape[0], self.heads, self.nope + self.rope)

    @torch.no_grad()
    def _prepare(self, x, lengths, counts, cache, row_offsets, way):
        norm = self.attention.kv_a_layernorm
        arguments = {"scale": self.attention.scaling}
        finishing = {
            "freqs_cis": self.freqs_cis,
            "kv_norm_gamma": norm.weight.detach(),
            "epsilon": norm.variance_epsilon,
        }
        if way == "fused":
            weight = torch.cat((self.attention.q_proj.weight, self.attention.kv_a_proj_with_mqa.weight))
            q = quire.fused_qkv_matmul(x, row_offsets, weight.detach(), cache, LAYER)
            return q.view(x.shape[0], self.heads, self.nope + self.rope), arguments | finishing
        q, rows = self.query(x, counts), by_sequence(self.attention.kv_a_proj_with_mqa, x, counts)
        if way == "given":
            return q, arguments | finishing | {"kv": rows}
        if way == "stored":
            quire.store(rows[:, None], row_offsets, cache, LAYER)
            return q, arguments | finishing
        q, rows = self._finish(q, rows, lengths, counts)
        quire.store(rows[:, None], row_offsets, cache, LAYER)
        return q, arguments

    def _finish(self, q, rows, lengths, counts):
        positions = torch.cat([torch.arange(n, n + c) for n, c in zip(lengths, counts)])
        freqs = self.freqs_cis[positions]
        interleaved = getattr(self.attention.config, "rope_interleave", True)
        rotate = rotate_pairs if interleaved else rotate_halves
        q = torch.cat((q[..., : self.nope], rotate(q[..., self.nope :], freqs)), dim=-1)
        latent = self.attention.kv_a_layernorm(rows[:, : self.latent])
        return q, torch.cat((latent, rotate(rows[:, self.latent :], freqs)), dim=-1)
