# SPDX-License-Identifier: Apache-2.0
"""The attention of a Llama-style layer, through quire: fused projection, norm of q and k, rope, attention."""

import torch

import quire

from .page_pool import PagePool, offsets_of
from .ragged_batch import by_sequence
from .transformers_layer import rope_table

LAYER = 1


class LlamaChain:
    """Takes the weights of a transformers module; everything but q's norm and the output projection is quire."""

    def __init__(self, attention, rotary, capacities, dtype=torch.float32, mask="causal", layer=LAYER, **pool):
        self.attention = attention.to(dtype)
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        self.weight = torch.cat([projection.weight for projection in projections]).detach()
        self.bias = None
        if attention.q_proj.bias is not None:
            self.bias = torch.cat([projection.bias for projection in projections]).detach()
        self.freqs_cis = rope_table(rotary, dtype)
        self.head_dim = attention.head_dim
        self.mask = mask
        self.layer = layer
        kv_heads = attention.config.num_key_value_heads
        self.pool = PagePool(capacities, self.head_dim, kv_heads, dtype=dtype, **pool)

    @torch.no_grad()
    def run(self, lengths, counts, parts) -> torch.Tensor:
        """Outputs of the new tokens of all sequences, [tokens, hidden]."""
        x, row_offsets, cache = torch.cat(parts), offsets_of(counts), self.pool.cache(lengths)
        q = quire.fused_qkv_matmul(x, row_offsets, self.weight, cache, self.layer, bias=self.bias)
        q = q.view(x.shape[0], -1, self.head_dim)
        if hasattr(self.attention, "q_norm"):
            q = self.attention.q_norm(q)
            norm = self.attention.k_norm
            quire.rms_norm_key(
                row_offsets,
                cache,
                self.layer,
                gamma=norm.weight.detach(),
                epsilon=norm.variance_epsilon,
                multiply_before_cast=False,
            )
        q = quire.rope(q, row_offsets, cache, self.layer, freqs_cis=self.freqs_cis, interleaved=False)
        out = quire.flash_attention(
            q, row_offsets, cache, self.layer, scale=self.attention.scaling, mask=self.mask
        )
        return by_sequence(self.attention.o_proj, out.flatten(1), counts)
