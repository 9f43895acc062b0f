# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention (DeepSeek-V3) over vLLM's cache of latent rows.

vLLM's layer stores the rows, calls `forward_mha` for prompts and, with queries that it has absorbed, `forward_mqa` for
sequences of few new tokens, which it puts first in the batch.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import quire
import torch
import vllm.envs as envs
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionMetadata,
    AttentionType,
    CommonAttentionMetadata,
    MLAAttentionImpl,
    MultipleOf,
)
from vllm.v1.attention.backends.utils import split_decodes_and_prefills

from quire_vllm import asking
from quire_vllm.batch import Batch, BatchBuilder, small_batch
from quire_vllm.pages import LatentPages

PAGE = 16
DECODE_TOKENS = 8  # new tokens of a sequence up to which `mla_decode` takes it
CHUNK = 16384  # keys that `mla_prefill` projects at a time, at most


class QuireMLABackend(AttentionBackend):
    accept_output_buffer: ClassVar[bool] = True
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.bfloat16, torch.float16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[str]] = [
        "auto",
        "float16",
        "bfloat16",
        "fp8",
        "fp8_e4m3",
        "fp8_ds_mla",
    ]

    @staticmethod
    def get_name() -> str:
        return "QUIRE_MLA"

    @staticmethod
    def get_impl_cls() -> type[QuireMLA]:
        return QuireMLA

    @staticmethod
    def get_builder_cls() -> type[LatentMetadataBuilder]:
        return LatentMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(PAGE)]

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, cache_dtype_str: str = "auto"
    ) -> tuple[int, ...]:
        """For vLLM 0.26; later versions know it themselves."""
        return (num_blocks, block_size, 656 if cache_dtype_str == "fp8_ds_mla" else head_size)

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        """For vLLM 0.26: the order of memory is that of the shape, layers may be between pages and tokens."""
        return (1, 0, 2, 3) if include_num_layers_dimension else (0, 1, 2)

    @classmethod
    def is_mla(cls) -> bool:
        return True

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        """Of prompts as long as the keys of a step fit into one chunk."""
        return True

    @classmethod
    def supports_dcp(cls) -> bool:
        return False

    @classmethod
    def validate_configuration(
        cls, head_size: int, dtype: torch.dtype, kv_cache_dtype: str | None, block_size: int | None, **asked: Any
    ) -> list[str]:
        """vLLM's own questions about this class, and Quire's answer for latent rows of this width."""
        found = super().validate_configuration(head_size, dtype, kv_cache_dtype, block_size, **asked)
        return found or cls.reasons(dtype, kv_cache_dtype, 16, head_size, head_size - 64, block_size or PAGE)

    @classmethod
    def reasons(
        cls, dtype: torch.dtype, kv_cache_dtype: str | None, heads: int, row: int, latent: int, page_size: int
    ) -> list[str]:
        """Why Quire does not take decode over such rows."""
        batch = small_batch(1)
        q = torch.zeros(1, heads, row, dtype=dtype, device=batch.row_offsets.device)
        cache = empty_cache(batch, dtype, kv_cache_dtype, row, page_size)
        return asking.reasons("mla_decode", q, batch.row_offsets, cache, 0, scale=1.0, latent_dim=latent)


def empty_cache(
    batch: Batch, dtype: torch.dtype, kv_cache_dtype: str | None, row: int, page_size: int
) -> quire.PagedKVCache:
    """A cache of one page, to ask Quire about."""
    packed = kv_cache_dtype == "fp8_ds_mla"
    of = torch.uint8 if packed else asking.cache_dtype(kv_cache_dtype, dtype)
    rows = torch.zeros(1, page_size, 656 if packed else row, dtype=torch.uint8, device=batch.row_offsets.device)
    found = LatentPages.of(rows.to(of), kv_cache_dtype or "auto")
    return batch.cache(found.blocks, row_format=found.row_format)


@dataclass
class LatentPrefill:
    """The sequences of many new tokens. The fields beside `batch` are those that vLLM's layer reads."""

    batch: Batch
    max_query_len: int
    keys: int  # of all sequences, each rounded up to whole pages
    use_dense_mha: bool = True
    chunked_context: Any = None
    plan: quire.MlaPrefillPlan | None = None  # made by the first layer of a step, for all

    def plan_for(self, cache: quire.PagedKVCache) -> quire.MlaPrefillPlan:
        if self.plan is None:
            rows = min(CHUNK, -(-self.keys // 1024) * 1024)
            chunks = None if self.batch.most_tokens is None else -(-self.keys // rows)
            self.plan = quire.mla_prefill_plan(self.batch.row_offsets, cache, 0, buffer_tokens=rows, max_chunks=chunks)
        return self.plan


@dataclass
class LatentMetadata(AttentionMetadata):
    """One step, sequences of few new tokens first. The names are those that vLLM's layer reads."""

    batch: Batch
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    decode: Batch | None
    prefill: LatentPrefill | None
    causal: bool = True
    topk_tokens: int = 0  # of an indexer, and the most keys of a sequence in `prefill`
    prefill_max_seq_len: int = 0


class LatentMetadataBuilder(BatchBuilder):
    reorder_batch_threshold: int = DECODE_TOKENS

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> LatentMetadata:
        common = common_attn_metadata
        if common.causal is not True:
            raise NotImplementedError("quire: latent attention that is not causal")
        batch = self.batch_of(common)
        decodes, prefills, decode_tokens, _ = split_decodes_and_prefills(
            common, decode_threshold=DECODE_TOKENS, require_uniform=False
        )
        few = DECODE_TOKENS if self._fixed_bounds else min(common.max_query_len, DECODE_TOKENS)
        return LatentMetadata(
            batch=batch,
            num_reqs=common.num_reqs,
            num_actual_tokens=common.num_actual_tokens,
            max_query_len=common.max_query_len,
            max_seq_len=common.max_seq_len,
            query_start_loc=batch.row_offsets,
            seq_lens=common.seq_lens,
            block_table=batch.page_table,
            slot_mapping=common.slot_mapping,
            num_decodes=decodes,
            num_decode_tokens=decode_tokens,
            num_prefills=prefills,
            decode=batch.first(decodes, few) if decodes > 0 else None,
            prefill=self._prefill(common, batch, decodes) if prefills > 0 else None,
        )

    def _prefill(self, common: CommonAttentionMetadata, batch: Batch, decodes: int) -> LatentPrefill:
        page = self.kv_cache_spec.block_size
        lengths = common.seq_lens_cpu_upper_bound
        lengths = common.seq_lens.cpu() if lengths is None else lengths
        pages = torch.div(lengths[decodes : common.num_reqs] + page - 1, page, rounding_mode="floor")
        return LatentPrefill(batch.after(decodes), common.max_query_len, int(pages.sum()) * page)


def use_one_projection() -> None:
    """vLLM multiplies DeepSeek's hidden states of up to 16 tokens in a kernel of their own, whose sums have another
    order; VLLM_BATCH_INVARIANT does not keep it from that."""
    models = sys.modules.get("vllm.model_executor.models.deepseek_v2")
    projection = getattr(models, "DeepSeekV2FusedQkvAProjLinear", None)
    if projection is not None:
        projection.forward = projection.__mro__[1].forward


class QuireMLA(MLAAttentionImpl[LatentMetadata]):
    supports_pcp: bool = False
    supports_dcp: bool = False

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None,
        sliding_window: int | None,
        kv_cache_dtype: str,
        logits_soft_cap: float | None,
        attn_type: str,
        kv_sharing_target_layer_name: str | None,
        q_lora_rank: int | None,
        kv_lora_rank: int,
        qk_nope_head_dim: int,
        qk_rope_head_dim: int,
        qk_head_dim: int,
        v_head_dim: int,
        kv_b_proj: torch.nn.Module,
        indexer: object | None = None,
        **others: Any,
    ) -> None:
        if envs.VLLM_BATCH_INVARIANT:
            use_one_projection()
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_kv_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.kv_lora_rank = kv_lora_rank
        self.qk_nope_head_dim = qk_nope_head_dim
        self.qk_rope_head_dim = qk_rope_head_dim
        self.v_head_dim = v_head_dim
        self.kv_b_proj = kv_b_proj
        self.indexer = indexer
        self._kv_cache: torch.Tensor | None = None
        self._pages: LatentPages | None = None
        self._weight: torch.Tensor | None = None
        refused = {
            "ALiBi": alibi_slopes,
            "a sliding window": sliding_window,
            "a softcap": logits_soft_cap,
            "the cache of another layer": kv_sharing_target_layer_name,
            "another attention type": attn_type if attn_type != AttentionType.DECODER else None,
            "decode context parallelism": self.dcp_world_size > 1,
        }
        asking.refuse([f"quire: latent attention with {name}" for name, given in refused.items() if given])
        asking.refuse(self._reasons())

    def _reasons(self) -> list[str]:
        return QuireMLABackend.reasons(
            torch.get_default_dtype(), self.kv_cache_dtype, self.num_heads, self.head_size, self.kv_lora_rank, PAGE
        )

    def fused_output_quant_supported(self, quant_key: Any) -> bool:
        return False

    def do_kv_cache_update(
        self,
        kv_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        kv_cache_dtype: str,
        k_scale: torch.Tensor,
    ) -> None:
        """Store finished rows. On a GPU vLLM's own kernel joins and stores them in one launch."""
        if kv_cache.numel() == 0:
            return
        if kv_cache.is_cuda:
            super().do_kv_cache_update(kv_c_normed, k_pe, kv_cache, slot_mapping, kv_cache_dtype, k_scale)
            return
        found = self._see(kv_cache)
        rows = torch.cat([kv_c_normed, k_pe.reshape(k_pe.shape[0], -1)], dim=-1)
        if kv_cache_dtype.startswith("fp8") and found.row_format is None:
            rows = rows / k_scale.to(rows.dtype)
        with asking.threads(rows):
            tokens = min(rows.shape[0], slot_mapping.numel())  # either may be longer, to fill up a shape
            cache = quire.PagedKVCache(found.blocks, row_format=found.row_format)
            quire.store(rows[:tokens, None], cache=cache, layer=0, slots=slot_mapping.flatten()[:tokens])

    def forward_mha(
        self,
        q: torch.Tensor,
        kv_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: LatentMetadata,
        k_scale: torch.Tensor,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
    ) -> None:
        """q [tokens, heads, nope + rope] of prompts → output [tokens, heads * value], over cached rows."""
        prefill = attn_metadata.prefill
        found = self._see(kv_c_and_k_pe_cache)
        cache = prefill.batch.cache(found.blocks, row_format=found.row_format)
        factor = float(k_scale) if self._is_scaled else 1.0  # waits for the GPU; no graph has prompts
        out = output.view(-1, self.num_heads, self.v_head_dim)
        with asking.threads(q):
            quire.mla_prefill(
                q,
                prefill.batch.row_offsets,
                cache,
                0,
                kv_b_proj=self._up_projection(q.dtype),
                scale=self.scale * factor,
                plan=prefill.plan_for(cache),
                out=out,
                batch_invariant=bool(envs.VLLM_BATCH_INVARIANT),
            )
        if factor != 1.0:
            out.mul_(factor)

    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: LatentMetadata,
        layer: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Absorbed queries [tokens, heads, latent + rope] of sequences with few new tokens."""
        q = torch.cat(q, dim=-1) if isinstance(q, tuple) else q
        found = self._see(kv_c_and_k_pe_cache)
        batch, factor = attn_metadata.decode, layer._k_scale_float if self._is_scaled else 1.0
        with asking.threads(q):
            out = quire.mla_decode(
                q,
                batch.row_offsets,
                batch.cache(found.blocks, row_format=found.row_format),
                0,
                scale=self.scale * factor,
                latent_dim=self.kv_lora_rank,
                batch_invariant=bool(envs.VLLM_BATCH_INVARIANT),
                allow_fp8_products=self._is_scaled,  # as vLLM's own backends of such GPUs do
            )
        return (out if factor == 1.0 else out.mul_(factor)), None

    def _see(self, kv_cache: torch.Tensor) -> LatentPages:
        if self._pages is None or self._kv_cache is None or kv_cache.data_ptr() != self._kv_cache.data_ptr():
            self._kv_cache, self._pages = kv_cache, LatentPages.of(kv_cache, self.kv_cache_dtype)
        return self._pages

    @property
    def _is_scaled(self) -> bool:
        """Plain fp8 rows have one scale, which scores and results are linear in."""
        return self.kv_cache_dtype in ("fp8", "fp8_e4m3")

    def _up_projection(self, dtype: torch.dtype) -> torch.Tensor:
        """[heads * (nope + value), latent]: the layer's weight, or what it is once dequantized."""
        if self._weight is None:
            rows = self.num_heads * (self.qk_nope_head_dim + self.v_head_dim)
            weight = getattr(self.kv_b_proj, "weight", None)
            if weight is not None and weight.dtype == dtype and tuple(weight.shape) == (rows, self.kv_lora_rank):
                self._weight = weight.detach()
            else:
                one = torch.eye(self.kv_lora_rank, dtype=dtype, device=asking.device())
                product = self.kv_b_proj(one)
                self._weight = (product[0] if isinstance(product, tuple) else product).T.contiguous()
        return self._weight
