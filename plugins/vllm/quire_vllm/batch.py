# SPDX-License-Identifier: Apache-2.0
"""Where the tokens of one step stand: vLLM's metadata as the lengths, offsets and page table of Quire's ops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import quire
import torch
import vllm.envs as envs
from vllm.config import VllmConfig
from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadataBuilder, CommonAttentionMetadata

from quire_vllm import asking


@dataclass
class Batch:
    """Sequences with new tokens. Without bounds the lengths are on the host, and kernels look at them."""

    row_offsets: torch.Tensor  # int32 [batch + 1]
    cache_lengths: torch.Tensor  # int32 [batch], before the new tokens
    page_table: torch.Tensor  # int32 [batch, columns]
    most_tokens: int | None = None  # new ones of a sequence
    most_keys: int | None = None  # of a sequence, new tokens included

    def cache(self, blocks: torch.Tensor, **options: Any) -> quire.PagedKVCache:
        """The cache of a layer, for this step."""
        return quire.PagedKVCache(
            blocks,
            self.cache_lengths,
            self.page_table,
            max_seq_length=self.most_tokens,
            max_cache_length=self.most_keys,
            **options,
        )

    def first(self, count: int, most_tokens: int | None) -> Batch:
        """The first sequences alone; their tokens are the first ones, too."""
        return Batch(
            self.row_offsets[: count + 1],
            self.cache_lengths[:count],
            self.page_table[:count],
            most_tokens if self.most_tokens is not None else None,
            self.most_keys,
        )

    def after(self, count: int) -> Batch:
        """The sequences after the first ones, their tokens counted from 0."""
        offsets = self.row_offsets[count:]
        return Batch(
            offsets - offsets[0],
            self.cache_lengths[count:],
            self.page_table[count:],
            self.most_tokens,
            self.most_keys,
        )


def small_batch(new_tokens: int) -> Batch:
    """One sequence of new tokens, to ask Quire about."""
    where = asking.device()
    bounds = (new_tokens, 4096) if where.type == "cuda" else (None, None)
    return Batch(
        torch.tensor([0, new_tokens], dtype=torch.int32, device=where),
        torch.zeros(1, dtype=torch.int32, device=where),
        torch.zeros(1, 64, dtype=torch.int32, device=where),
        *bounds,
    )


class BatchBuilder(AttentionMetadataBuilder):
    """Makes the `Batch` of a step. Lengths stay in one place, so that a captured graph reads those of each replay."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.model_config = vllm_config.model_config
        scheduler = vllm_config.scheduler_config
        captured = vllm_config.compilation_config.max_cudagraph_capture_size or 0
        self._lengths = torch.zeros(max(scheduler.max_num_seqs, captured), dtype=torch.int32, device=device)
        # One bound for all steps chooses one kernel for all.
        self._fixed_bounds: tuple[int, int] | None = None
        if envs.VLLM_BATCH_INVARIANT and self.model_config is not None:
            longest = self.model_config.max_model_len
            self._fixed_bounds = (min(scheduler.max_num_batched_tokens, longest), longest)

    def batch_of(self, common: CommonAttentionMetadata) -> Batch:
        lengths = self._lengths[: common.num_reqs]
        lengths.copy_(common.compute_num_computed_tokens()[: common.num_reqs]).clamp_(min=0)
        bounds: tuple[int | None, int | None] = (None, None)
        if lengths.is_cuda:
            bounds = self._fixed_bounds or (common.max_query_len, common.max_seq_len)
        return Batch(
            common.query_start_loc[: common.num_reqs + 1],
            lengths,
            common.block_table_tensor[: common.num_reqs],
            *bounds,
        )
