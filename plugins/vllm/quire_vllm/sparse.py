# SPDX-License-Identifier: Apache-2.0
"""Latent attention to the keys that an indexer chose (DeepSeek-V3.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import quire
import torch
import vllm.envs as envs
from vllm.config import VllmConfig
from vllm.v1.attention.backend import CommonAttentionMetadata, MultipleOf

from quire_vllm import asking
from quire_vllm.batch import small_batch
from quire_vllm.latent import LatentMetadata, LatentMetadataBuilder, QuireMLA, QuireMLABackend, empty_cache

PAGE = 64  # the indexer's cache has pages of it alone


class QuireSparseMLABackend(QuireMLABackend):
    @staticmethod
    def get_name() -> str:
        return "QUIRE_MLA_SPARSE"

    @staticmethod
    def get_impl_cls() -> type[QuireSparseMLA]:
        return QuireSparseMLA

    @staticmethod
    def get_builder_cls() -> type[SparseMetadataBuilder]:
        return SparseMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [PAGE]

    @classmethod
    def is_sparse(cls) -> bool:
        return True

    @classmethod
    def reasons(
        cls, dtype: torch.dtype, kv_cache_dtype: str | None, heads: int, row: int, latent: int, page_size: int
    ) -> list[str]:
        """Why Quire does not take chosen keys among such rows."""
        batch = small_batch(1)
        where = batch.row_offsets.device
        q = torch.zeros(1, heads, row, dtype=dtype, device=where)
        indices = torch.zeros(1, 2048, dtype=torch.int32, device=where)
        cache = empty_cache(batch, dtype, kv_cache_dtype, row, page_size)
        return asking.reasons(
            "sparse_mla", q, batch.row_offsets, cache, 0, indices=indices, scale=1.0, latent_dim=latent
        )


class SparseMetadataBuilder(LatentMetadataBuilder):
    """Prompts that are no longer than what the indexer chooses need no choice: they take the dense way, where no other
    prompt of the step is longer. Which way that is must not depend on the others where steps are batch invariant."""

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.topk_tokens = vllm_config.model_config.hf_text_config.index_topk

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> LatentMetadata:
        metadata = super().build(common_prefix_len, common_attn_metadata, fast_build)
        longest = 0
        if metadata.prefill is not None:
            lengths = common_attn_metadata.seq_lens_cpu_upper_bound
            longest = metadata.max_seq_len if lengths is None else int(lengths[metadata.num_decodes :].max())
            if envs.VLLM_BATCH_INVARIANT:
                longest = max(longest, self.topk_tokens + 1)  # vLLM 0.26 looks at this alone
            metadata.prefill.use_dense_mha = longest <= self.topk_tokens
        return replace(metadata, topk_tokens=self.topk_tokens, prefill_max_seq_len=longest)


class QuireSparseMLA(QuireMLA):
    is_sparse: ClassVar[bool] = True
    masked_mha_available: ClassVar[bool] = False

    def __init__(self, *args: Any, topk_indices_buffer: torch.Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if topk_indices_buffer is None:
            topk_indices_buffer = getattr(self.indexer, "topk_indices_buffer", None)
        if topk_indices_buffer is None:
            raise ValueError("quire: sparse attention without a buffer of chosen positions")
        self.topk_indices_buffer = topk_indices_buffer

    def record_logical_topk_ready(self) -> None:
        """vLLM 0.32 tells when the positions are there; they are read in the order of the stream."""

    def _reasons(self) -> list[str]:
        return QuireSparseMLABackend.reasons(
            torch.get_default_dtype(), self.kv_cache_dtype, self.num_heads, self.head_size, self.kv_lora_rank, PAGE
        )

    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: LatentMetadata,
        layer: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Absorbed queries of all tokens, or of the decoding sequences where the prompts went the dense way."""
        q = torch.cat(q, dim=-1) if isinstance(q, tuple) else q
        tokens = q.shape[0]
        batch = attn_metadata.batch if tokens == attn_metadata.num_actual_tokens else attn_metadata.decode
        found = self._see(kv_c_and_k_pe_cache)
        factor = layer._k_scale_float if self._is_scaled else 1.0
        with asking.threads(q):
            out = quire.sparse_mla(
                q,
                batch.row_offsets,
                batch.cache(found.blocks, row_format=found.row_format),
                0,
                indices=self.topk_indices_buffer[:tokens],
                scale=self.scale * factor,
                latent_dim=self.kv_lora_rank,
                batch_invariant=bool(envs.VLLM_BATCH_INVARIANT),
            )
        return (out if factor == 1.0 else out.mul_(factor)), None
