# SPDX-License-Identifier: Apache-2.0
"""Steps as vLLM's runner describes them, and attention in float64 to hold results against."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from vllm.v1.attention.backend import CommonAttentionMetadata


class Sequences:
    """Sequences of one batch over pages that are dealt out of order."""

    def __init__(self, lengths: list[int], page_size: int, seed: int = 0) -> None:
        self.lengths = lengths  # tokens at the end of the test
        self.page_size = page_size
        self.columns = max(-(-length // page_size) for length in lengths)
        self.num_pages = len(lengths) * self.columns + 1  # page 0 is nobody's
        order = torch.randperm(self.num_pages - 1, generator=torch.Generator().manual_seed(seed)) + 1
        self.table = order.view(len(lengths), self.columns).to(torch.int32)

    def share(self, pages: int) -> None:
        """The first pages of all sequences are those of the first."""
        self.table[:, :pages] = self.table[0, :pages]

    def step(self, cached: list[int], new: list[int], unused: int = 0, causal: bool = True) -> CommonAttentionMetadata:
        """New tokens after the cached ones; `unused` sequences and tokens fill up the shape, as of a captured graph."""
        counts = torch.tensor([*new, *[0] * unused], dtype=torch.int32)
        offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)
        seq_lens = counts + torch.tensor([*cached, *[0] * unused], dtype=torch.int32)
        slots = [
            int(self.table[s, p // self.page_size]) * self.page_size + p % self.page_size
            for s, (start, count) in enumerate(zip(cached, new, strict=True))
            for p in range(start, start + count)
        ]
        return CommonAttentionMetadata(
            query_start_loc=offsets,
            query_start_loc_cpu=offsets,
            seq_lens=seq_lens,
            num_reqs=len(counts),
            num_actual_tokens=int(counts.sum()),
            max_query_len=int(counts.max()),
            max_seq_len=int(seq_lens.max()),
            block_table_tensor=torch.nn.functional.pad(self.table, (0, 0, 0, unused)),
            slot_mapping=torch.tensor(slots, dtype=torch.int64),
            causal=causal,
            seq_lens_cpu_upper_bound=seq_lens,
        )


def spec(page_size: int, bytes_per_token: int = 1024) -> SimpleNamespace:
    """What builders read of a KV cache's specification."""
    return SimpleNamespace(block_size=page_size, page_size_bytes=page_size * bytes_per_token)


def layer(k_scale: float = 1.0, v_scale: float = 1.0) -> SimpleNamespace:
    """What an implementation reads of vLLM's layer."""
    return SimpleNamespace(
        _k_scale=torch.tensor(k_scale), _v_scale=torch.tensor(v_scale), _k_scale_float=k_scale, _v_scale_float=v_scale
    )


def visible(new: int, keys: int, causal: bool = True, window: int | None = None) -> torch.Tensor:
    """[new, keys]: which keys the last `new` tokens of a sequence see."""
    query = torch.arange(keys - new, keys)[:, None]
    key = torch.arange(keys)[None, :]
    seen = key <= query if causal else torch.ones(new, keys, dtype=torch.bool)
    return seen if window is None else seen & ((query - key).abs() < window)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    seen: torch.Tensor,
    scale: float,
    softcap: float = 0.0,
    slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """q [new, heads, d], k [keys, kv_heads, d], v [keys, kv_heads, w] → [new, heads, w], every product in `dtype`."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.to(dtype).repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.to(dtype), k).double() * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    if slopes is not None:
        new, keys = seen.shape
        distance = torch.arange(keys)[None, :] - torch.arange(keys - new, keys)[:, None]
        scores = scores + slopes.double()[:, None, None] * distance
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, scores.shape[1], 1)], dim=-1)
    weights = scores.softmax(-1)[..., : k.shape[0]]
    return torch.einsum("hqk,khw->qhw", weights.to(dtype), v)


def assert_close(actual: torch.Tensor, exact: torch.Tensor, naive: torch.Tensor) -> None:
    """No further from float64 than twice what the same dtype's plain evaluation is, and two units in its last place."""
    eps = torch.finfo(actual.dtype).eps
    limit = 2 * (naive.double() - exact).abs().max() + 2 * eps * exact.abs().max()
    error = (actual.double() - exact).abs().max()
    assert error <= limit, f"error {error:.3g}, limit {limit:.3g}"
