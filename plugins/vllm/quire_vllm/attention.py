# SPDX-License-Identifier: Apache-2.0
"""Attention of heads with keys and values (MHA, GQA, MQA) over vLLM's paged cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import quire
import torch
import vllm.envs as envs
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadata,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)

from quire_vllm import asking, pages
from quire_vllm.batch import Batch, BatchBuilder, small_batch
from quire_vllm.workspace import Limits

PAGE = 16  # tokens of a page are a multiple of it
# Bytes of a shared prefix that a step must not read twice before it is worth to leave the captured graph for it.
WORTH_SHARING = 200e6


class QuireBackend(AttentionBackend):
    accept_output_buffer: ClassVar[bool] = True
    forward_includes_kv_cache_update: ClassVar[bool] = True
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.bfloat16, torch.float16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[str]] = [
        "auto",
        "float16",
        "bfloat16",
        "fp8",
        "fp8_e4m3",
        "fp8_e5m2",
    ]

    @staticmethod
    def get_name() -> str:
        return "QUIRE_MHA"

    @staticmethod
    def get_impl_cls() -> type[QuireAttention]:
        return QuireAttention

    @staticmethod
    def get_builder_cls() -> type[QuireMetadataBuilder]:
        return QuireMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(PAGE)]

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, cache_dtype_str: str = "auto"
    ) -> tuple[int, ...]:
        """For vLLM 0.26; later versions know it themselves."""
        return (num_blocks, num_kv_heads, block_size, 2 * head_size)

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        """For vLLM 0.26: any order of memory will do."""
        from vllm.v1.attention.backends.utils import get_kv_cache_layout

        if get_kv_cache_layout() == "HND":
            return (1, 2, 0, 3, 4) if include_num_layers_dimension else (0, 1, 2, 3)
        return (1, 0, 3, 2, 4) if include_num_layers_dimension else (0, 2, 1, 3)

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True

    @classmethod
    def supports_dcp(cls) -> bool:
        return False

    @classmethod
    def validate_configuration(
        cls,
        head_size: int,
        dtype: torch.dtype,
        kv_cache_dtype: str | None,
        block_size: int | None,
        **asked: Any,
    ) -> list[str]:
        """vLLM's own questions about this class, and Quire's answer for heads of this size."""
        found = super().validate_configuration(head_size, dtype, kv_cache_dtype, block_size, **asked)
        return found or _reasons(dtype, kv_cache_dtype, 8, 1, head_size, block_size or PAGE, {})


@dataclass
class QuireMetadata(AttentionMetadata):
    """One step. The names that connectors and speculators look for are vLLM's."""

    batch: Batch
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    causal: bool = True
    shared_prefix: int = 0  # tokens at the start of all sequences that are the same rows of the cache


class QuireMetadataBuilder(BatchBuilder):
    supports_update_block_table: bool = True

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> QuireMetadata:
        common = common_attn_metadata
        if isinstance(common.causal, torch.Tensor):
            raise NotImplementedError("quire: sequences of one batch are all causal, or none is")
        batch = self.batch_of(common)
        return QuireMetadata(
            batch=batch,
            num_actual_tokens=common.num_actual_tokens,
            max_query_len=common.max_query_len,
            max_seq_len=common.max_seq_len,
            query_start_loc=batch.row_offsets,
            seq_lens=common.seq_lens,
            block_table=batch.page_table,
            slot_mapping=common.slot_mapping,
            causal=common.causal,
            shared_prefix=common_prefix_len,
        )

    def update_block_table(
        self, metadata: QuireMetadata, blk_table: torch.Tensor, slot_mapping: torch.Tensor
    ) -> QuireMetadata:
        table = blk_table[: metadata.batch.cache_lengths.shape[0]]
        return replace(
            metadata, batch=replace(metadata.batch, page_table=table), block_table=table, slot_mapping=slot_mapping
        )

    def use_cascade_attention(
        self,
        common_prefix_len: int,
        query_lens: np.ndarray,
        num_query_heads: int,
        num_kv_heads: int,
        use_alibi: bool,
        use_sliding_window: bool,
        use_local_attention: bool,
        num_sms: int,
        dcp_world_size: int,
    ) -> bool:
        """Whether to read a prefix that all sequences share once (vLLM 0.26 asks). The step then runs eagerly."""
        if self.device.type == "cpu" or use_alibi or use_sliding_window or use_local_attention or dcp_world_size > 1:
            return False
        if envs.VLLM_BATCH_INVARIANT:
            return False
        row_bytes = self.kv_cache_spec.page_size_bytes // self.kv_cache_spec.block_size
        return (len(query_lens) - 1) * common_prefix_len * row_bytes >= WORTH_SHARING


class QuireAttention(AttentionImpl[QuireMetadata]):
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.sliding_window = sliding_window
        self.attn_type = attn_type
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.sinks = sinks
        where = asking.device()
        self._arguments: dict[str, Any] = {"scale": self.scale, "softcap": float(logits_soft_cap or 0.0)}
        if alibi_slopes is not None:
            self._arguments["alibi_slopes"] = torch.tensor(alibi_slopes, dtype=torch.float32, device=where)
        if sinks is not None:
            self._arguments["sinks"] = sinks.detach().to(where, torch.float32)
        self._is_fp8 = asking.cache_dtype(kv_cache_dtype, torch.bfloat16).itemsize == 1
        if self._is_fp8:
            self._arguments["allow_fp8_products"] = True  # as vLLM's own backend of such GPUs does
        if envs.VLLM_BATCH_INVARIANT:
            self._arguments["batch_invariant"] = True
        self._masks = {True: _mask(True, sliding_window), False: _mask(False, sliding_window)}
        self._limits = Limits.of_config()
        self._kv_cache: torch.Tensor | None = None
        self._blocks: torch.Tensor | None = None
        self._scales: torch.Tensor | None = None
        self._factors = (1.0, 1.0)  # of keys and values in an fp8 cache
        self._both_factors: torch.Tensor | None = None
        self._refuse_what_quire_does_not_take()

    def _refuse_what_quire_does_not_take(self) -> None:
        if self.attn_type != AttentionType.DECODER:
            served = AttentionType.DECODER.value
            raise ValueError(f"quire: attention type {self.attn_type}, where {served} alone is served")
        if self.dcp_world_size > 1:
            raise ValueError("quire: decode context parallelism is not served")
        asking.refuse(
            _reasons(
                torch.get_default_dtype(),
                self.kv_cache_dtype,
                self.num_heads,
                self.num_kv_heads,
                self.head_size,
                PAGE,
                {**self._arguments, "mask": self._masks[True]},
            )
        )

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        if self.sinks is not None:
            self._arguments["sinks"] = self.sinks.detach().float()

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor | None,
        value: torch.Tensor | None,
        kv_cache: torch.Tensor,
        attn_metadata: QuireMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """query, key, value [tokens, heads, columns] → output, after key and value were stored."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("quire: attention does not quantize its output")
        if self._is_fp8 and (layer._k_scale_float, layer._v_scale_float) != self._factors:
            self._take_scales(layer)
        if attn_metadata is None:
            self._reserve(query)
            return output.fill_(0)
        if kv_cache is not self._kv_cache:
            self._see(kv_cache)
        batch, tokens = attn_metadata.batch, attn_metadata.num_actual_tokens
        cache = batch.cache(self._blocks, scales=self._scales)
        with asking.threads(query):
            if self.kv_sharing_target_layer_name is None and key is not None:
                slots = attn_metadata.slot_mapping[:tokens]
                quire.store(key[:tokens], cache=cache, layer=0, value=value[:tokens], slots=slots)
            quire.flash_attention(
                query[:tokens],
                batch.row_offsets,
                cache,
                0,
                mask=self._masks[attn_metadata.causal],
                shared_prefix_pages=attn_metadata.shared_prefix // self._blocks.shape[3],
                out=output[:tokens],
                **self._arguments,
            )
        return output

    def _take_scales(self, layer: Any) -> None:
        """In vLLM's profile run, long before a graph is captured."""
        self._factors = (layer._k_scale_float, layer._v_scale_float)
        self._both_factors = pages.factors(layer._k_scale, layer._v_scale)
        self._kv_cache = None

    def _see(self, kv_cache: torch.Tensor) -> None:
        """A layer's cache is the same tensor from step to step: its views are made once."""
        self._blocks = pages.key_value_blocks(kv_cache, self.kv_cache_dtype)
        self._scales = None if self._factors == (1.0, 1.0) else pages.scales_of(self._both_factors, self._blocks)
        self._kv_cache = kv_cache

    def _reserve(self, query: torch.Tensor) -> None:
        """In vLLM's profile run, take the scratch of the largest step, so that no page gets that memory."""
        if not query.is_cuda:
            return

        blocks = _one_page(query.dtype, self.kv_cache_dtype, self.num_kv_heads, self.head_size, PAGE)
        arguments = {**self._arguments, "mask": self._masks[True]}

        def ask(batch: Batch) -> int:
            cache = batch.cache(blocks)
            return quire.supports("flash_attention", query, batch.row_offsets, cache, 0, **arguments).workspace_bytes

        self._limits.reserve(query, PAGE, ask)


def _mask(causal: bool, window: int | None) -> quire.Mask:
    mask = quire.causal() if causal else quire.full()
    return mask if window is None else mask & quire.sliding_window(window)


def _one_page(
    dtype: torch.dtype, kv_cache_dtype: str | None, kv_heads: int, head_size: int, page_size: int
) -> torch.Tensor:
    """Blocks to ask Quire about."""
    rows = torch.zeros(1, page_size, kv_heads, 2 * head_size, dtype=torch.float32, device=asking.device())
    rows = rows.to(asking.cache_dtype(kv_cache_dtype, dtype)).transpose(1, 2)
    return pages.key_value_blocks(rows, kv_cache_dtype or "auto")


def _reasons(
    dtype: torch.dtype,
    kv_cache_dtype: str | None,
    heads: int,
    kv_heads: int,
    head_size: int,
    page_size: int,
    arguments: dict[str, Any],
) -> list[str]:
    """Why Quire does not take decode or prefill of such heads."""
    blocks = _one_page(dtype, kv_cache_dtype, kv_heads, head_size, page_size)
    found = []
    for new_tokens in (1, 64):
        batch = small_batch(new_tokens)
        q = torch.zeros(new_tokens, heads, head_size, dtype=dtype, device=blocks.device)
        found += asking.reasons("flash_attention", q, batch.row_offsets, batch.cache(blocks), 0, **arguments)
    return found
