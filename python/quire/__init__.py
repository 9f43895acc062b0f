# SPDX-License-Identifier: Apache-2.0
"""LLM attention kernels around a paged KV cache.

Functions take numpy, torch, CuPy and JAX arrays without copying them; bfloat16 and fp8 come from torch or ml_dtypes.
All tensors of a call are on one device. Results are allocated in the framework of the first argument, or go to `out`.
A wrong argument raises ValueError, TypeError or NotImplementedError before anything is written; the exception has the
attributes op, argument, expected and actual.
"""

from quire._call import PreparedCall, using
from quire._quire import PackedWeight, Plan, Refusal, RowFormat, RowPart, __version__
from quire.attention import flash_attention, merge_states
from quire.cache import PagedKVCache
from quire.compress import compress_keys
from quire.decode import AbsorbedWeights, absorb_kv_b_proj, mla_decode
from quire.index_rows import quantize_index_queries, store_index_keys
from quire.masks import Mask, causal, chunked, full, key_intervals, sliding_window, tree
from quire.pages import NO_PAGE, Admission, PageCopies, PageEvent, PageGroup, PageManager, PrefixProbe
from quire.prefill import MlaPrefillPlan, mla_prefill, mla_prefill_plan
from quire.projection import fused_qkv_matmul, linear
from quire.quant import Quant, pack_int4, pack_weight, quantize_fp8
from quire.rows import copy_pages, rms_norm_key, rms_norm_value, rope, row_offsets, store, store_scales
from quire.sparse import SparseExtra, mla_indexer, remap_sparse_indices, select_blocks, sparse_mla
from quire.support import CpuCeiling, info, measure_cpu_ceiling, plan, supports

__all__ = [
    "AbsorbedWeights",
    "Admission",
    "CpuCeiling",
    "Mask",
    "MlaPrefillPlan",
    "NO_PAGE",
    "PackedWeight",
    "PageCopies",
    "PageEvent",
    "PageGroup",
    "PageManager",
    "PagedKVCache",
    "Plan",
    "PrefixProbe",
    "PreparedCall",
    "Quant",
    "Refusal",
    "RowFormat",
    "RowPart",
    "SparseExtra",
    "__version__",
    "absorb_kv_b_proj",
    "causal",
    "chunked",
    "compress_keys",
    "copy_pages",
    "flash_attention",
    "full",
    "fused_qkv_matmul",
    "info",
    "key_intervals",
    "linear",
    "measure_cpu_ceiling",
    "merge_states",
    "mla_decode",
    "mla_indexer",
    "mla_prefill",
    "mla_prefill_plan",
    "pack_int4",
    "pack_weight",
    "plan",
    "quantize_fp8",
    "quantize_index_queries",
    "remap_sparse_indices",
    "rms_norm_key",
    "rms_norm_value",
    "rope",
    "row_offsets",
    "select_blocks",
    "sliding_window",
    "sparse_mla",
    "store",
    "store_index_keys",
    "store_scales",
    "supports",
    "tree",
    "using",
]
