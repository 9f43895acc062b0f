# SPDX-License-Identifier: Apache-2.0
"""One small valid call of every op, by the names of its arguments. Fresh memory each time."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import quire
from problems import make_cache, offsets

NEW, CACHED, TOKENS = (3, 1), (2, 5), 4
FP8 = ml_dtypes.float8_e4m3fn


def _scaled(cache: quire.PagedKVCache) -> quire.PagedKVCache:
    scales = np.ones((*cache.blocks.shape[:5], 1), np.float32)
    return quire.PagedKVCache(cache.blocks, cache.cache_lengths, cache.page_table, scales)


class _Calls:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)

    def array(self, *shape: int, dtype: object = np.float32) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(dtype)

    def cache(self, **options: object) -> quire.PagedKVCache:
        return make_cache(NEW, CACHED, rng=self.rng, **options)

    def latent_cache(self) -> quire.PagedKVCache:
        return self.cache(kv=1, heads=1, head_dim=24)

    def index_cache(self) -> quire.PagedKVCache:
        return _scaled(self.cache(kv=1, heads=1, dtype=FP8))

    def dense(self) -> dict[str, dict]:
        array, freqs = self.array, self.array(16, 8)
        batch = {"row_offsets": offsets(NEW), "layer": 0}
        norm = {"gamma": array(8), "cache": self.cache(), **batch}
        return {
            "fused_qkv_matmul": {
                "x": array(TOKENS, 16), "weight": array(48, 16), "bias": array(48), "cache": self.cache(), **batch,
                "out": array(TOKENS, 16),
            },
            "linear": {"x": array(TOKENS, 16), "weight": array(24, 16), "bias": array(24), "out": array(TOKENS, 24)},
            "rope": {
                "q": array(TOKENS, 2, 8), "freqs_cis": freqs, "q_gamma": array(8), "key_gamma": array(8),
                "cache": self.cache(), **batch, "out": array(TOKENS, 2, 8),
            },
            "flash_attention": {
                "q": array(TOKENS, 2, 8), "alibi_slopes": array(2), "sinks": array(2), "cache": self.cache(), **batch,
                "out": array(TOKENS, 2, 8),
            },
            "select_blocks": {
                "q": array(TOKENS, 2, 8), "cache": self.cache(), **batch, "block_size": 2, "max_blocks": 3,
                "out": np.zeros((TOKENS, 2, 3), np.int32),
            },
            "merge_states": {"states": array(2, TOKENS, 2, 8), "lses": array(2, TOKENS, 2), "out": array(TOKENS, 2, 8)},
            "rms_norm_key": norm,
            "rms_norm_value": norm | {"cache": self.cache()},
            "store": {"x": array(TOKENS, 2, 8), "cache": self.cache(), **batch},
            "store_scales": {"scales": array(TOKENS, 2, 1), "cache": _scaled(self.cache(dtype=FP8)), **batch},
            "copy_pages": {"pairs": np.array([[0, 1]], np.uint32), "cache": self.cache()},
            "row_offsets": {
                "row_offsets": offsets(NEW), "cache_lengths": np.array(CACHED, np.uint32), "out": np.zeros(3, np.uint32),
            },
            "quantize_fp8": {"x": array(TOKENS, 16), "out": array(TOKENS, 16, dtype=FP8), "scale": array(TOKENS, 1)},
        }

    def latent(self) -> dict[str, dict]:
        array, freqs = self.array, self.array(16, 8)
        batch = {"row_offsets": offsets(NEW), "layer": 0}
        rows = {
            "freqs_cis": freqs, "kv_norm_gamma": array(16), "kv": array(TOKENS, 24), "sinks": array(2), "scale": 0.3,
            **batch,
        }
        index = {"index_cache": self.index_cache(), "freqs_cis": self.array(16, 4), "row_offsets": offsets(NEW)}
        return {
            "mla_prefill_plan": {"cache": self.latent_cache(), **batch, "buffer_tokens": 8},
            "mla_prefill": {
                "q": array(TOKENS, 2, 12), "kv_b_proj": array(16, 16), "cache": self.latent_cache(), **rows,
                "out": array(TOKENS, 2, 4),
            },
            "mla_decode": {
                "q": array(TOKENS, 2, 12), "w_uk": array(2, 16, 4), "w_uv": array(2, 6, 16), "cache": self.latent_cache(),
                **rows, "out": array(TOKENS, 2, 6),
            },
            "compress_keys": {
                "kv": array(TOKENS, 48), "gate": array(TOKENS, 48), "bias": array(2, 48), "gamma": array(24),
                "freqs_cis": freqs, "state": array(3, 4, 2, 48), "state_slots": np.array([2, 0], np.uint32),
                "cache": self.latent_cache(), **batch,
            },
            "store_index_keys": {
                "x": array(TOKENS, 8), "norm_weight": array(8), "norm_bias": array(8), "layer": 0, **index,
            },
            "quantize_index_queries": {
                "q": array(TOKENS, 2, 8), "weights": array(TOKENS, 2), **index,
                "out": array(TOKENS, 2, 8, dtype=FP8), "q_scale": array(TOKENS, 2),
            },
            "mla_indexer": {
                "q": array(TOKENS, 2, 8, dtype=FP8), "q_scale": array(TOKENS, 2), "index_cache": self.index_cache(),
                "top_k": 3, **batch, "out": np.zeros((TOKENS, 3), np.int32),
            },
            "sparse_mla": {
                "q": array(TOKENS, 2, 24), "indices": np.zeros((TOKENS, 3), np.int32), "scale": 0.3, "sinks": array(2),
                "topk_lengths": np.full(TOKENS, 2, np.int32), "cache": self.latent_cache(), **batch,
                "out": array(TOKENS, 2, 16),
            },
            "remap_sparse_indices": {
                "indices": np.zeros((TOKENS, 3), np.int32), "row_offsets": offsets(NEW), "cache": self.cache(),
                "out": np.zeros((TOKENS, 3), np.int32),
            },
        }


def make_calls() -> dict[str, dict]:
    """op → arguments; the same numbers every time."""
    calls = _Calls()
    return calls.dense() | calls.latent()
