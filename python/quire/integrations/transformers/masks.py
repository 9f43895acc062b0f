# SPDX-License-Identifier: Apache-2.0
"""What transformers says about the mask of a forward pass, read as a rule that Quire has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from transformers import masking_utils

import quire
from quire.integrations.transformers.compiled import outside_of_graphs


@dataclass(frozen=True)
class Rule:
    """Which keys a query sees, padding aside."""

    causal: bool
    window: int | None = None  # keys nearer than so many
    chunk: int | None = None  # keys of the query's own chunk of so many
    refusal: str = ""  # why Quire cannot

    @cached_property
    def mask(self) -> quire.Mask:
        mask = quire.causal() if self.causal else quire.full()
        if self.window is not None:
            mask = mask & quire.sliding_window(self.window)
        return mask if self.chunk is None else mask & quire.chunked(self.chunk)


@dataclass(eq=False)
class StepMask:
    """Stands for the mask tensor of one forward pass; all layers of a kind share it.

    `generate` makes it before it calls a model with a StaticCache, and treats it as a tensor on the way.
    """

    rule: Rule
    padding: torch.Tensor | None  # bool [batch, tokens], False where there is no token
    q_length: int
    kv_length: int
    q_offset: int
    kv_offset: int
    batches: dict[Any, Any] = field(default_factory=dict)  # what given.py made of it
    ndim = 4

    def contiguous(self) -> StepMask:
        return self


class _Unknown(Exception):
    """A mask function that is none of those below."""


def read_rule(function: Callable[..., Any]) -> Rule:
    """The rule behind a mask function of transformers.masking_utils."""
    try:
        return _read(function)
    except _Unknown as unknown:
        return Rule(causal=True, refusal=f"the mask function {unknown} is none that Quire knows")


def _read(function: Callable[..., Any]) -> Rule:
    if function is masking_utils.causal_mask_function:
        return Rule(causal=True)
    if function is masking_utils.bidirectional_mask_function:
        return Rule(causal=False)
    parts = _enclosed(function, "and_masks", "mask_functions")
    if parts is None:
        raise _Unknown(getattr(function, "__qualname__", repr(function)))
    causal, window, chunk = False, None, None
    for part in parts:
        size = _enclosed(part, "sliding_window_overlay", "sliding_window")
        two_sided = _enclosed(part, "sliding_window_bidirectional_overlay", "sliding_window")
        chunk_size = _enclosed(part, "chunked_overlay", "chunk_size")
        if size is not None and masking_utils.causal_mask_function in parts:
            window = size
        elif two_sided is not None:
            window = two_sided + 1  # theirs includes the distance itself
        elif chunk_size is not None:
            chunk = chunk_size
        else:
            inner = _read(part)
            causal = causal or inner.causal
            window = inner.window if window is None else window
    return Rule(causal, window, chunk)


def _enclosed(function: Callable[..., Any], maker: str, variable: str) -> Any:
    """What a closure made by masking_utils.<maker> has as `variable`; None if it is no such closure."""
    is_made_there = getattr(function, "__module__", "") == masking_utils.__name__
    if not is_made_there or not getattr(function, "__qualname__", "").startswith(maker + ".<locals>"):
        return None
    names = function.__code__.co_freevars
    return function.__closure__[names.index(variable)].cell_contents if variable in names else None


@outside_of_graphs("masks are read outside of compiled graphs; compile without fullgraph")
def step_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function,
    attention_mask: torch.Tensor | StepMask | None = None,
    allow_is_causal_skip: bool = True,
    **kwargs: Any,
) -> StepMask | torch.Tensor:
    """The mask function that `register` gives to transformers."""
    if isinstance(attention_mask, StepMask):
        return attention_mask
    rule, q_offset = read_rule(mask_function), int(q_offset)  # of a StaticCache a tensor that grows with its layers
    step = StepMask(rule, attention_mask, q_length, kv_length, q_offset, kv_offset)
    if allow_is_causal_skip or not rule.causal or rule.refusal:
        return step
    # The model itself reads this mask: an indexer.
    tensor = masking_utils.sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        allow_is_causal_skip=False,
        **kwargs,
    ).contiguous()
    tensor.quire_step = step
    return tensor


def read_step(attention_mask: Any) -> StepMask | None:
    """The StepMask behind what a layer got as its mask."""
    if attention_mask is None or isinstance(attention_mask, StepMask):
        return attention_mask
    step = getattr(attention_mask, "quire_step", None)
    if step is None:
        what = f"a tensor {list(attention_mask.shape)}" if hasattr(attention_mask, "shape") else type(attention_mask)
        raise NotImplementedError(
            f"quire: the attention mask is {what} that was made outside of transformers.masking_utils; Quire takes "
            "causal, sliding and chunked masks with a 2-D padding mask [batch, tokens]"
        )
    return step


def is_one_run(padding: torch.Tensor) -> torch.Tensor:
    """Whether the tokens of every sequence stand together: padding on the left and on the right, none between."""
    starts = padding[:, 1:] & ~padding[:, :-1]
    return (starts.sum(1) + padding[:, 0] <= 1).all()
