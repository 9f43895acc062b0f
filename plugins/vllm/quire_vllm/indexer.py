# SPDX-License-Identifier: Apache-2.0
"""The indexer of DeepSeek-V3.2: its keys into their cache, and the positions that it chooses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import quire
import torch
import vllm.envs as envs
from vllm.config import CompilationConfig, get_current_vllm_config
from vllm.forward_context import get_forward_context
from vllm.model_executor.custom_op import CustomOp, op_registry_oot
from vllm.model_executor.layers import sparse_attn_indexer
from vllm.utils.torch_utils import direct_register_custom_op
from vllm.v1.attention.backend import AttentionBackend, CommonAttentionMetadata, MultipleOf

from quire_vllm import asking
from quire_vllm.batch import Batch, BatchBuilder
from quire_vllm.pages import INDEX_BYTES, IndexPages
from quire_vllm.registration import is_quire

OP = "quire_sparse_attn_indexer"
PAGE = 64
_views: dict[int, IndexPages] = {}  # by address of a layer's cache: they stay


class QuireIndexerBackend(AttentionBackend):
    """What vLLM asks about the cache of index keys; the op below reads it."""

    @staticmethod
    def get_name() -> str:
        return "QUIRE_INDEXER"

    @staticmethod
    def get_impl_cls() -> type:
        raise NotImplementedError("quire: the indexer is an op, not an attention")

    @staticmethod
    def get_builder_cls() -> type[IndexMetadataBuilder]:
        return IndexMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [PAGE]

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, cache_dtype_str: str = "auto"
    ) -> tuple[int, ...]:
        """For vLLM 0.26; later versions know it themselves."""
        return (num_blocks, block_size, head_size)

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        """For vLLM 0.26."""
        return (1, 0, 2, 3) if include_num_layers_dimension else (0, 1, 2)

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return [INDEX_BYTES, INDEX_BYTES - 4]

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True


@dataclass
class IndexMetadata:
    batch: Batch
    num_actual_tokens: int
    slot_mapping: torch.Tensor


class IndexMetadataBuilder(BatchBuilder):
    reorder_batch_threshold: ClassVar[int | None] = None

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> IndexMetadata:
        common = common_attn_metadata
        return IndexMetadata(self.batch_of(common), common.num_actual_tokens, common.slot_mapping)


class QuireIndexer(sparse_attn_indexer.SparseAttnIndexer):
    """vLLM's indexer op where another backend was chosen, Quire's where that one was."""

    def __init__(
        self,
        k_cache: Any,
        quant_block_size: int,
        scale_fmt: str,
        topk_tokens: int,
        head_dim: int,
        max_model_len: int,
        max_total_seq_len: int,
        topk_indices_buffer: torch.Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.on_quire = is_quire(get_current_vllm_config().attention_config.backend)
        if not self.on_quire:
            sizes = (quant_block_size, scale_fmt, topk_tokens, head_dim, max_model_len, max_total_seq_len)
            super().__init__(k_cache, *sizes, topk_indices_buffer, *args, **kwargs)
            return
        CustomOp.__init__(self)  # vLLM's own asks for DeepGEMM
        if (quant_block_size, head_dim) != (128, 128) or kwargs.get("use_fp4_cache"):
            raise ValueError(f"quire: index keys of {head_dim} columns in blocks of {quant_block_size}; 128 are served")
        self.k_cache = k_cache
        self.topk_tokens = topk_tokens
        self.head_dim = head_dim
        self.topk_indices_buffer = topk_indices_buffer
        self.skip_k_cache_insert = bool(kwargs.get("skip_k_cache_insert"))
        self.dense_mha_metadata_layer_name = ""
        self.topk_backend = "quire"
        k_cache.on_quire = True
        k_cache.get_attn_backend = lambda: QuireIndexerBackend

    def forward_native(self, hidden_states: torch.Tensor, q_quant: Any, k: Any, weights: torch.Tensor) -> torch.Tensor:
        return self.forward_cuda(hidden_states, q_quant, k, weights)

    def forward_cuda(self, hidden_states: torch.Tensor, q_quant: Any, k: Any, weights: torch.Tensor) -> torch.Tensor:
        if not self.on_quire:
            return super().forward_cuda(hidden_states, q_quant, k, weights)
        return getattr(torch.ops.vllm, OP)(
            self.k_cache.prefix,
            self.k_cache.kv_cache,
            q_quant,
            None if self.skip_k_cache_insert else k,
            weights,
            self.topk_tokens,
            self.topk_indices_buffer,
        )


def choose(
    layer_name: str,
    kv_cache: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor | None,
    weights: torch.Tensor,
    topk_tokens: int,
    topk_indices_buffer: torch.Tensor,
) -> torch.Tensor:
    """Store k, write the positions of the best keys of each token to the buffer."""
    metadata = get_forward_context().attn_metadata
    metadata = metadata[0] if isinstance(metadata, list) else metadata
    if not isinstance(metadata, dict):  # vLLM's profile run
        return topk_indices_buffer
    choose_in(metadata[layer_name], kv_cache, q, k, weights, topk_tokens, topk_indices_buffer)
    return topk_indices_buffer


def choose_in(
    step: IndexMetadata,
    kv_cache: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor | None,
    weights: torch.Tensor,
    topk_tokens: int,
    chosen: torch.Tensor,
) -> None:
    """q fp8 [tokens, heads, 128] with its scales in `weights` [tokens, heads], k [tokens, 128]."""
    tokens, batch = step.num_actual_tokens, step.batch
    found = _views.get(kv_cache.data_ptr())
    if found is None or found.blocks.shape[0] != kv_cache.shape[0]:
        found = _views[kv_cache.data_ptr()] = IndexPages.of(kv_cache)
    cache = batch.cache(found.blocks, scales=found.scales)
    with asking.threads(q):
        if k is not None:
            quire.store_index_keys(k[:tokens], batch.row_offsets, cache, 0)
        quire.mla_indexer(
            q[:tokens],
            weights[:tokens].float(),
            batch.row_offsets,
            cache,
            0,
            top_k=topk_tokens,
            out=chosen[:tokens, :topk_tokens],
            batch_invariant=bool(envs.VLLM_BATCH_INVARIANT),
        )


def _choose_fake(
    layer_name: str,
    kv_cache: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor | None,
    weights: torch.Tensor,
    topk_tokens: int,
    topk_indices_buffer: torch.Tensor,
) -> torch.Tensor:
    return topk_indices_buffer


def register() -> None:
    """Put `QuireIndexer` in the place of vLLM's op, and beside the function that some models call without it."""
    if "SparseAttnIndexer" in op_registry_oot:
        return
    direct_register_custom_op(
        op_name=OP, op_func=choose, mutates_args=["topk_indices_buffer"], fake_impl=_choose_fake
    )
    CompilationConfig._attention_ops.append(f"vllm::{OP}")
    CustomOp.register_oot(QuireIndexer, name="SparseAttnIndexer")
    sparse_attn_indexer.sparse_attn_indexer = _or_quire(sparse_attn_indexer.sparse_attn_indexer)


def _or_quire(own: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """vLLM's function, which from 0.27 on DeepSeek-V3.2 calls itself, and Quire's for caches that are its own."""

    @functools.wraps(own)
    def called(
        hidden_states: torch.Tensor,
        k_cache_prefix: str,
        kv_cache: torch.Tensor,
        q_quant: torch.Tensor,
        q_scale: torch.Tensor | None,
        k: torch.Tensor | None,
        weights: torch.Tensor,
        *sizes: Any,
        **options: Any,
    ) -> torch.Tensor:
        layer = get_forward_context().no_compile_layers.get(k_cache_prefix)
        if not getattr(layer, "on_quire", False):
            tensors = (kv_cache, q_quant, q_scale, k, weights)
            return own(hidden_states, k_cache_prefix, *tensors, *sizes, **options)
        topk_tokens, chosen = sizes[2], sizes[6]
        inserted = options.get("skip_k_cache_insert", False)
        return choose(k_cache_prefix, kv_cache, q_quant, None if inserted else k, weights, topk_tokens, chosen)

    return called
