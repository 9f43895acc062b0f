# SPDX-License-Identifier: Apache-2.0
"""transformers' own model, whose keys and values go through e4m3: what an fp8 cache without scales should give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AttentionInterface, AutoModelForCausalLM


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """query [1, heads, tokens, columns], causal."""
    group = query.shape[1] // key.shape[1]
    k, v = (x.to(torch.float8_e4m3fn).float().repeat_interleave(group, dim=1) for x in (key, value))
    out = torch.nn.functional.scaled_dot_product_attention(query, k, v, is_causal=True, scale=scaling)
    return out.transpose(1, 2), None


def prompt_logprobs(folder: Path, prompt: list[int]) -> list[float]:
    """Of every token of the prompt but the first."""
    AttentionInterface.register("rounded_rows", _attend)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="rounded_rows", dtype=torch.float32)
    tokens = torch.tensor([prompt])
    with torch.no_grad():
        found = model(tokens, use_cache=False).logits[0, :-1].log_softmax(-1)
    return found.gather(1, tokens[0, 1:, None])[:, 0].tolist()
