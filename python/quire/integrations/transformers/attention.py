# SPDX-License-Identifier: Apache-2.0
"""The attention function that `register` gives to transformers: over a PagedCache, or over keys and values as given."""

from __future__ import annotations

from typing import Any

import torch

import quire
from quire.integrations.transformers import continuous, given, latent
from quire.integrations.transformers.cache import NewTokens, take_waiting
from quire.integrations.transformers.chosen import attend_chosen, chosen_positions
from quire.integrations.transformers.compiled import outside_of_graphs
from quire.integrations.transformers.masks import Rule, StepMask, read_step
from quire.integrations.transformers.rows import rows_of, with_padding
from quire.integrations.transformers.scores import Scores


@outside_of_graphs("attention runs outside of compiled graphs; compile without fullgraph")
def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: torch.Tensor | None = None,
    cache: Any = None,
    indices: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers calls it: query [batch, heads, tokens, columns] → [batch, tokens, heads, columns]."""
    waiting = take_waiting()
    _refuse(query, key, dropout, kwargs)
    scores = Scores.read(scaling, softcap, s_aux)
    if cache is not None:
        return continuous.attend(module, query, key, value, cache, scores, sliding_window, kwargs), None
    mask = read_step(attention_mask)
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    rule = Rule(bool(causal), sliding_window) if mask is None else mask.rule
    if mask is None and not rule.causal and rule.window is not None:
        raise NotImplementedError("quire: a window without a mask that says whether it has two sides")
    _check_rule(rule, sliding_window, kwargs)
    tokens = _tokens_of(module, key, waiting)
    if tokens is None:
        return given.attend(query, key, value, mask, rule, scores, indices), None
    return _attend_paged(module, query, tokens, mask, rule, scores, indices), None


def _refuse(query: torch.Tensor, key: torch.Tensor, dropout: float, kwargs: dict[str, Any]) -> None:
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad):
        raise NotImplementedError("quire: attention has no gradients; run the model under torch.no_grad()")
    if dropout:
        raise NotImplementedError(f"quire: attention has no dropout, got {dropout}; call model.eval()")
    for name in ("position_bias", "block_indices"):
        if kwargs.get(name) is not None:
            raise NotImplementedError(f"quire: attention takes no {name}")
    if kwargs.get("output_attentions"):
        raise NotImplementedError('quire: attention weights are never made; output_attentions needs "eager"')


def _check_rule(rule: Rule, sliding_window: int | None, kwargs: dict[str, Any]) -> None:
    if rule.refusal:
        raise NotImplementedError(f"quire: {rule.refusal}")
    if kwargs.get("cu_seq_lens_q") is not None:
        raise NotImplementedError("quire: packed sequences (cu_seq_lens_q) are served by generate_batch only")
    if sliding_window is not None and rule.window != sliding_window:
        raise NotImplementedError(
            f"quire: the layer has a window of {sliding_window}, the mask that it was given one of {rule.window}"
        )


def _tokens_of(module: torch.nn.Module, key: torch.Tensor, waiting: NewTokens | None) -> NewTokens | None:
    """The tokens of a PagedCache that a layer attends to; None if it has another cache, or none."""
    tokens = getattr(key, "quire_tokens", None)
    if waiting is None:
        return tokens  # of an earlier layer, whose keys this one shares
    if waiting.is_latent:
        if getattr(module, "layer_idx", None) != waiting.layer.index:
            raise RuntimeError(f"quire: latents of layer {waiting.layer.index} came to another attention")
        return waiting
    if tokens is not waiting:
        raise RuntimeError(
            f"quire: {type(module).__name__} changed its keys after it had put them into a PagedCache"
        )
    return tokens


def _attend_paged(
    module: torch.nn.Module,
    query: torch.Tensor,
    tokens: NewTokens,
    mask: StepMask | None,
    rule: Rule,
    scores: Scores,
    indices: torch.Tensor | None,
) -> torch.Tensor:
    """Store the new tokens, then attend to all of their layer's."""
    layer = tokens.layer
    batch, _, count = query.shape[:3]
    if layer.window is not None and (rule.window is None or rule.window > layer.window):
        raise RuntimeError(f"quire: layer {layer.index} keeps {layer.window} tokens, its mask shows {rule.window}")
    if tokens.key is not None:
        _store(tokens, batch, count, mask)
    step, pages = tokens.step, tokens.pages
    q = rows_of(query, step.rows)
    offsets, positions = step.row_offsets(q.device), None
    if indices is not None and indices.shape[-1] < tokens.seen + count:  # else every key was chosen
        positions = chosen_positions(indices, step.start, step.visible, step.rows)
    if tokens.is_latent:
        out = latent.attend(module, q, pages, step, rule, scores, positions)
    elif positions is not None:
        rows = quire.remap_sparse_indices(positions, offsets, pages)
        out = attend_chosen(q, *(pool.flatten(0, 1) for pool in layer.pools), rows, scores)
    else:
        out = quire.flash_attention(q, offsets, pages, 0, mask=rule.mask, **scores.arguments)
    return with_padding(out, step.rows, batch, count)


def _store(tokens: NewTokens, batch: int, count: int, mask: StepMask | None) -> None:
    """Put new tokens into the pages of their layer. Padding is among the rows, and has no slots."""
    layer, states = tokens.layer, [rows_of(x, None) for x in (tokens.key, tokens.value)]
    tokens.key = tokens.value = None
    step = tokens.step = tokens.cache.begin(layer, batch, count, mask)
    if tokens.is_latent:
        states = [torch.cat(states, dim=-1)]
    window, device = layer.window, states[0].device
    laid, copies = step.laid[window], step.copies[window]
    layer.reserve(laid.num_pages, tokens.cache.pages_limit(window), states)
    # Lengths are those before the step.
    tokens.pages = layer.pages(step.cache_lengths(device), laid.page_table(device), step.new.most)
    if len(copies):
        quire.copy_pages(tokens.pages, step.page_copies(device, window))
    layer.store(states, step.row_offsets(device), step.slots(device, window), tokens.pages)
    layer.seen += count
