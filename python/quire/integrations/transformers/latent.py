# SPDX-License-Identifier: Apache-2.0
"""Latent attention (DeepSeek): the pages hold the compressed rows, and keys and values are never built for them all."""

from __future__ import annotations

import torch

import quire
from quire.integrations.transformers.masks import Rule
from quire.integrations.transformers.scores import Scores
from quire.integrations.transformers.step import Step

_MOST_DECODED = 8  # new tokens of a sequence that mla_decode takes


def attend(
    module: torch.nn.Module,
    q: torch.Tensor,
    cache: quire.PagedKVCache,
    step: Step,
    rule: Rule,
    scores: Scores,
    positions: torch.Tensor | None,
) -> torch.Tensor:
    """q [tokens, heads, nope + rope] → [tokens, heads, value]; `positions` [tokens, top_k] where keys were chosen."""
    if scores.softcap:
        raise NotImplementedError("quire: latent attention has no softcap")
    weight, nope = _up_projection(module, q.shape[1])
    heads, offsets = q.shape[1], step.row_offsets(q.device)
    scale = q.shape[-1] ** -0.5 if scores.scale is None else scores.scale
    if positions is not None:
        return _attend_chosen(q, cache, offsets, weight.unflatten(0, (heads, -1)), nope, positions, scale, scores)
    if step.new.most <= _MOST_DECODED:
        absorbed = quire.absorb_kv_b_proj(weight, heads=heads, nope=nope)
        weights = {"w_uk": absorbed.w_uk, "w_uv": absorbed.w_uv}
        return quire.mla_decode(
            q, offsets, cache, 0, scale=scale, mask=rule.mask, sinks=scores.sinks, **weights
        )
    if q.device not in step.plans:
        step.plans[q.device] = quire.mla_prefill_plan(offsets, cache, 0)
    return quire.mla_prefill(
        q,
        offsets,
        cache,
        0,
        kv_b_proj=weight,
        scale=scale,
        plan=step.plans[q.device],
        mask=rule.mask,
        sinks=scores.sinks,
    )


def _up_projection(module: torch.nn.Module, heads: int) -> tuple[torch.Tensor, int]:
    """kv_b_proj [heads * (nope + value), latent] and nope."""
    linear, nope = getattr(module, "kv_b_proj", None), getattr(module, "qk_nope_head_dim", None)
    value = getattr(module, "v_head_dim", None)
    if nope is None or value is None or linear is None:
        raise NotImplementedError(f"quire: {type(module).__name__} caches latents, but has no kv_b_proj as DeepSeek's")
    if type(linear) is not torch.nn.Linear or linear.bias is not None:
        raise NotImplementedError(
            f"quire: kv_b_proj is a {type(linear).__name__}; latent attention multiplies by the weight of a plain "
            "torch.nn.Linear without bias"
        )
    weight = linear.weight.detach()
    if weight.shape[0] != heads * (nope + value):
        raise NotImplementedError(
            f"quire: kv_b_proj has {weight.shape[0]} rows for {heads} heads of {nope} + {value}"
        )
    return weight, nope


def _attend_chosen(
    q: torch.Tensor,
    cache: quire.PagedKVCache,
    offsets: torch.Tensor,
    weight: torch.Tensor,  # [heads, nope + value, latent]
    nope: int,
    positions: torch.Tensor,
    scale: float,
    scores: Scores,
) -> torch.Tensor:
    absorbed = torch.einsum("thn,hnl->thl", q[..., :nope], weight[:, :nope])
    out = quire.sparse_mla(
        torch.cat((absorbed, q[..., nope:]), dim=-1),
        offsets,
        cache,
        0,
        indices=positions,
        scale=scale,
        sinks=scores.sinks,
        latent_dim=weight.shape[-1],
    )
    return torch.einsum("thl,hvl->thv", out, weight[:, nope:])
