# SPDX-License-Identifier: Apache-2.0
"""Tells transformers about Quire: the attention, its masks, the cache of `generate`, and continuous batching."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, GenerationMixin, PreTrainedModel
from transformers.generation.continuous_batching import continuous_api, initialization

from quire.integrations.transformers.attention import attention
from quire.integrations.transformers.cache import PagedCache, why_not_paged
from quire.integrations.transformers.masks import step_mask

NAME = "quire"
# The name while generate_batch runs. transformers asks for "flash" in the names of attentions that need no mask tensor.
BATCH_NAME = "quire_flash"


def register() -> None:
    """Make `attn_implementation="quire"` known to transformers. Calling it twice does nothing more.

    Four functions of transformers are wrapped, and act as before for every other attention: the one that makes the
    cache of `generate` (a PagedCache, where the caller gave none and asked for none), two that decide
    whether `generate_batch` takes an attention and whether it gets block tables, and the one that makes or resets
    what `generate_batch` works with, which is waited for on a GPU.
    """
    AttentionInterface.register(NAME, attention)
    AttentionInterface.register(BATCH_NAME, attention)
    AttentionMaskInterface.register(NAME, step_mask)
    _wrap(GenerationMixin, "_prepare_cache_for_generation", _prepare_cache)
    _wrap(continuous_api.ContinuousBatchingManager, "switch_to_cb_friendly_attn", _switch_attention)
    _wrap(continuous_api.ContinuousBatchingManager, "_create_batch_processor", _create_batch_processor)
    if hasattr(initialization, "ATTN_TYPE_TO_ALLOCATOR"):
        _wrap(initialization, "ensure_decode_fast_path_is_available", _allow_block_tables)


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace owner.name by a function that calls wrapper(original, …)."""
    original = getattr(owner, name)
    if getattr(original, "wrapped_by_quire", False):
        return

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    wrapped.wrapped_by_quire = True
    setattr(owner, name, wrapped)


def _prepare_cache(
    original: Callable[..., Any],
    model: Any,
    generation_config: Any,
    model_kwargs: dict[str, Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    was_given = model_kwargs.get("past_key_values") is not None
    result = original(model, generation_config, model_kwargs, *args, **kwargs)
    config = model.config.get_text_config(decoder=True)
    is_default = not was_given and generation_config.cache_implementation is None
    if (
        is_default
        and config._attn_implementation == NAME
        and type(model_kwargs.get("past_key_values")) is DynamicCache
        and not why_not_paged(config)
    ):
        cache = model_kwargs["past_key_values"] = PagedCache(config, max_length=generation_config.max_length)
        if generation_config.is_assistant:
            cache.activate_past_recording()
    return result


def _switch_attention(original: Callable[..., Any], manager: Any, model: Any, *args: Any, **kwargs: Any) -> None:
    if model.config._attn_implementation != NAME:
        return original(manager, model, *args, **kwargs)
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and part.config._attn_implementation == NAME:
            part.config._attn_implementation_internal = BATCH_NAME
    manager._original_attn_impl = NAME  # transformers sets it again when the manager stops


def _create_batch_processor(original: Callable[..., Any], manager: Any, *args: Any, **kwargs: Any) -> Any:
    """transformers fills inputs and outputs with zeros on the current stream, which its own streams do not wait for."""
    processor = original(manager, *args, **kwargs)
    model = manager.model
    if model.config._attn_implementation == BATCH_NAME and model.device.type == "cuda":
        torch.cuda.current_stream(model.device).synchronize()
    return processor


def _allow_block_tables(original: Callable[..., Any], config: Any, cb_config: Any, *args: Any, **kwargs: Any) -> None:
    if config._attn_implementation != BATCH_NAME:
        return original(config, cb_config, *args, **kwargs)
    kinds = initialization.group_layers_by_attn_type(config)
    if not all(initialization.ATTN_TYPE_TO_ALLOCATOR[kind].supports_block_table for kind in kinds):
        cb_config.max_blocks_per_request = 0
