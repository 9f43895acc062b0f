# SPDX-License-Identifier: Apache-2.0
"""A cache of transformers whose keys and values lie in pages that Quire reads and writes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import Cache, PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin

import quire
from quire.integrations.transformers.masks import StepMask, is_one_run
from quire.integrations.transformers.pages import PageTable
from quire.integrations.transformers.step import LaidPages, NewRows, Step

PAGE_SIZE = 64
_KINDS = ("full_attention", "sliding_attention", "chunked_attention", "indexed_attention", "deepseek_sparse_attention")


def layer_kinds(config: PreTrainedConfig) -> list[tuple[str, int | None]]:
    """Kind and window of each layer that has keys of its own."""
    count = config.num_hidden_layers - (getattr(config, "num_kv_shared_layers", None) or 0)
    window, chunk = getattr(config, "sliding_window", None), getattr(config, "attention_chunk_size", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        plain = "full_attention" if chunk is None else "chunked_attention"
        kinds = [plain if window is None else "sliding_attention"] * count
    return [(kind, window if kind == "sliding_attention" else None) for kind in kinds[:count]]


def why_not_paged(config: PreTrainedConfig) -> str:
    """Why a model cannot have a PagedCache; empty if it can."""
    if getattr(config, "is_encoder_decoder", False):
        return "the model has an encoder"
    if not isinstance(getattr(config, "num_hidden_layers", None), int):
        return "its configuration has no num_hidden_layers"
    others = sorted({kind for kind, _ in layer_kinds(config)} - set(_KINDS))
    return f"its layers of type {', '.join(others)} have no keys to page" if others else ""


class PagedLayer(CacheLayerMixin):
    """Keys and values of one layer: a pool of pages for each, [pages, tokens, heads, columns]; or one, of latents."""

    is_compileable = False
    is_croppable = True
    supports_early_init = False

    def __init__(self, index: int, kind: str, window: int | None, page_size: int) -> None:
        super().__init__()
        self.index = index
        self.window = window
        self.page_size = page_size
        self.is_sliding = kind in ("sliding_attention", "chunked_attention")
        self.seen = 0  # tokens, padding counted
        self.pools: list[torch.Tensor] = []  # of K and V, or of latents
        self._blocks: list[torch.Tensor] = []  # the same memory, as Quire's ops take it
        self._indexer_keys: torch.Tensor | None = None  # [batch, room, columns]
        self._indexer_seen = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: pages are taken when tokens come."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("quire: a PagedLayer is updated through its PagedCache")

    def get_seq_length(self) -> int:
        return self.seen

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen + query_length, 0

    def reset(self) -> None:
        self.seen = self._indexer_seen = 0
        self._indexer_keys = None

    def pages(self, lengths: torch.Tensor, table: torch.Tensor, most_tokens: int) -> quire.PagedKVCache:
        """The pools as a cache of Quire's."""
        values = self._blocks[1] if len(self._blocks) == 2 else None
        return quire.PagedKVCache(self._blocks[0], lengths, table, max_seq_length=most_tokens, value_blocks=values)

    def store(
        self,
        states: list[torch.Tensor],
        row_offsets: torch.Tensor,
        slots: torch.Tensor | None,
        pages: quire.PagedKVCache,
    ) -> None:
        """Rows [tokens, heads, columns] for each pool, in one launch where K and V are equally wide."""
        if len(states) == 2 and states[0].shape[-1] == states[1].shape[-1]:
            quire.store(states[0], row_offsets, pages, value=states[1], slots=slots)
            return
        for blocks, rows in zip(self._blocks, states, strict=True):
            pool = quire.PagedKVCache(blocks, pages.cache_lengths, pages.page_table)
            pool.max_seq_length = pages.max_seq_length
            quire.store(rows, row_offsets, pool, slots=slots)

    def reserve(self, num_pages: int, limit: int | None, states: list[torch.Tensor]) -> None:
        """Pools of at least so many pages for tokens like those of `states`, [..., heads, columns] each.

        They double when they are full (up to `limit`), so that a token is moved about once, however many will come.
        """
        have = self.pools[0].shape[0] if self.pools else 0
        if have and not _are_alike(states, self.pools):
            raise ValueError(
                f"quire: new tokens of layer {self.index} are {_describe(states)}, the cached ones "
                f"{_describe(self.pools)}"
            )
        num_pages = max(num_pages, 1)  # none is asked for by padding alone
        if num_pages > have:
            room = max(num_pages, 2 * have if limit is None else min(2 * have, limit))
            grown = [x.new_empty((room, self.page_size, *x.shape[-2:])) for x in states]
            for pool, old in zip(grown, self.pools, strict=False):
                pool[:have] = old
            self.pools, self._blocks = grown, [pool[:, None, None] for pool in grown]

    def update_indexer(self, keys: torch.Tensor) -> torch.Tensor:
        """Index keys [batch, new tokens, columns] are kept beside the pages: the model's own indexer reads them."""
        first, end = self._indexer_seen, self._indexer_seen + keys.shape[1]
        if self._indexer_keys is None or end > self._indexer_keys.shape[1]:
            room = keys.new_empty((keys.shape[0], max(end + 64, 2 * first), keys.shape[2]))
            if first:
                room[:, :first] = self._indexer_keys[:, :first]
            self._indexer_keys = room
        self._indexer_keys[:, first:end] = keys
        self._indexer_seen = end
        return self._indexer_keys[:, :end]

    def select_indexer(self, sequences: torch.Tensor) -> None:
        if self._indexer_keys is not None:
            self._indexer_keys = self._indexer_keys[sequences.to(self._indexer_keys.device)]

    def shorten(self, tokens: int) -> None:
        """Forget all but the first `tokens`, padding counted."""
        self.seen = min(self.seen, tokens)
        self._indexer_seen = min(self._indexer_seen, tokens)


def _are_alike(states: list[torch.Tensor], pools: list[torch.Tensor]) -> bool:
    return len(states) == len(pools) and all(
        x.shape[-2:] == pool.shape[-2:] and x.dtype == pool.dtype and x.device == pool.device
        for x, pool in zip(states, pools, strict=True)
    )


def _describe(states: list[torch.Tensor]) -> str:
    sizes = " and ".join(f"{x.shape[-2]} x {x.shape[-1]}" for x in states)
    return f"{sizes} {states[0].dtype} on {states[0].device}"


@dataclass(eq=False)
class NewTokens:
    """What `update` was given for a layer, until the attention takes it."""

    cache: PagedCache
    layer: PagedLayer
    key: torch.Tensor | None  # None, as is value, once they are in the pages
    value: torch.Tensor | None
    is_latent: bool
    seen: int  # tokens before them, padding counted
    step: Step | None = None
    pages: quire.PagedKVCache | None = None


class _Waiting(threading.local):
    """The NewTokens that the attention of this thread has to take next."""

    tokens: NewTokens | None = None


_waiting = _Waiting()


def take_waiting() -> NewTokens | None:
    tokens, _waiting.tokens = _waiting.tokens, None
    return tokens


class PagedCache(Cache):
    """The cache of `generate` under `attn_implementation="quire"`; `register` makes it the default there.

    Every layer has a pool of pages of its own, on its own device; one page table serves all layers of the same window.
    Sequences of different lengths take no room for padding, beams share pages until they differ, and layers with
    a window give back pages that no query can see any more.

    Parameters
    ----------
    config : PreTrainedConfig
        Of the model.
    page_size : int
        Tokens per page.
    max_length : int, optional
        Tokens that a sequence will have at most: pools do not grow beyond it on suspicion.
    """

    def __init__(
        self, config: PreTrainedConfig, *, page_size: int = PAGE_SIZE, max_length: int | None = None
    ) -> None:
        config = config.get_text_config(decoder=True)
        reason = why_not_paged(config)
        if reason:
            raise NotImplementedError(f"quire: {type(config).__name__} cannot have a PagedCache: {reason}")
        named = getattr(config, "_attn_implementation", None)
        if named is not None and "quire" not in named:
            raise ValueError(
                f'quire: a PagedCache is read by attn_implementation="quire" only, this model has "{named}"'
            )
        kinds = layer_kinds(config)
        super().__init__(layers=[PagedLayer(i, kind, window, page_size) for i, (kind, window) in enumerate(kinds)])
        self.page_size = page_size
        self.max_length = max_length
        self._latent_shape = (getattr(config, "kv_lora_rank", None), getattr(config, "qk_rope_head_dim", None))
        self._tables = {window: PageTable(page_size, window) for _, window in kinds}
        self._laid: dict[int | None, LaidPages] = {}
        self._step: Step | None = None
        self._visible: torch.Tensor | None = None  # bool [batch, tokens seen]; None: no padding so far

    @property
    def batch_size(self) -> int:
        return next(iter(self._tables.values())).batch or -1

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence, padding not counted."""
        return next(iter(self._tables.values())).lengths.tolist()

    @property
    def pages_in_use(self) -> int:
        """Pages that hold tokens, of all page tables; a page that sequences share counts once."""
        return sum(table.in_use for table in self._tables.values())

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hands the new tokens on; they are stored by the attention, which knows what of them is padding."""
        if _waiting.tokens is not None:
            lost = take_waiting()
            raise RuntimeError(
                f"quire: the keys of layer {lost.layer.index} in a PagedCache were not attended to: the model does not "
                'run attn_implementation="quire", or an attention of its own'
            )
        widths = (key_states.shape[-1], value_states.shape[-1])
        is_latent = key_states.shape[1] == value_states.shape[1] == 1 and widths == self._latent_shape
        layer = self.layers[layer_idx]
        tokens = NewTokens(self, layer, key_states, value_states, is_latent, layer.seen)
        _waiting.tokens = tokens
        if is_latent:
            # The model makes keys and values of what it gets here, which nobody reads: one token's will do.
            return key_states[:1, :, :1], value_states[:1, :, :1]
        key_states.quire_tokens = tokens
        return key_states, value_states

    def begin(self, layer: PagedLayer, batch: int, count: int, mask: StepMask | None) -> Step:
        """The step that a layer's new tokens belong to. The layer counts them itself, when they are stored."""
        step = self._step
        if step is None or layer.seen == step.start + step.new.count:
            step = self._step = self._new_step(layer.seen, batch, count, mask)
        new = step.new
        if layer.seen != step.start or layer.index in step.joined or (batch, count) != (new.batch, new.count):
            raise RuntimeError(
                f"quire: layer {layer.index} holds {layer.seen} tokens and gets {batch} x {count}, where others hold "
                f"{step.start} and got {new.batch} x {new.count}: a forward pass was not completed; crop(0) takes "
                "the cache back to where it began"
            )
        if mask is not None and (mask.q_length, mask.kv_length) != (count, step.start + count):
            raise RuntimeError(
                f"quire: a mask of {mask.q_length} x {mask.kv_length} for {count} new tokens after {step.start}"
            )
        step.joined.add(layer.index)
        return step

    def _new_step(self, start: int, batch: int, count: int, mask: StepMask | None) -> Step:
        tables = self._tables.values()
        for table in tables:
            if start == 0:
                table.start(batch)
            elif table.batch != batch:
                raise ValueError(f"quire: {batch} sequences, where the cache holds {table.batch}")
        padding = None if mask is None else mask.padding
        self._visible = None if start == 0 else self._visible
        if padding is None and self._visible is not None:
            raise ValueError("quire: no attention mask, where that of the cached tokens had padding")
        visible, new = None, None
        if padding is not None:
            visible, new = self._check_padding(padding, start, count)
        last = None if self._step is None else self._step.new
        if new is None and last is not None and last.rows is None and (last.batch, last.count) == (batch, count):
            rows = last
        else:
            rows = NewRows(batch, count, new)
        lengths = next(iter(tables)).lengths
        columns = -(-int((lengths + rows.counts).max(initial=0)) // self.page_size)
        laid, copies = {}, {}
        for window, table in self._tables.items():
            copies[window] = table.extend(rows.counts)
            laid[window] = self._lay(window, table, columns)
            table.advance(rows.counts)
        self._visible = visible
        return Step(start, self.page_size, rows, lengths, visible, laid, copies)

    def _lay(self, window: int | None, table: PageTable, columns: int) -> LaidPages:
        laid = self._laid.get(window)
        if laid is None or (laid.version, laid.table.shape[1]) != (table.version, columns):
            laid = self._laid[window] = LaidPages(table.ids[:, :columns].copy(), table.num_pages, table.version)
        return laid

    def _check_padding(
        self, padding: torch.Tensor, start: int, count: int
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The padding mask and its columns for the new tokens, or None for what hides nothing."""
        if padding.shape[1] != start + count:
            raise ValueError(
                f"quire: the attention mask has {padding.shape[1]} columns for {start} cached and {count} new tokens"
            )
        if self._visible is None and bool(padding.all()):
            return None, None
        before, new = padding[:, :start], padding[:, start:]
        same = before.all() if self._visible is None else (before == self._visible).all()
        facts = torch.stack((same, before.all(), new.all(), is_one_run(padding)))
        same, all_before, all_new, one_run = facts.tolist()  # the host waits once
        if not same:
            raise NotImplementedError(
                "quire: the attention mask treats cached tokens otherwise than when they were stored: what was "
                "padding is not in the pages, and stored tokens cannot be hidden later"
            )
        if not one_run and any(layer.is_sliding for layer in self.layers):
            raise NotImplementedError(
                "quire: the attention mask has padding between tokens, which layers with a window or chunks would "
                "count as distance; pad on the left"
            )
        return None if all_before and all_new else padding, None if all_new else new

    def pages_limit(self, window: int | None) -> int | None:
        if self.max_length is None:
            return None
        return self._tables[window].batch * -(-self.max_length // self.page_size)

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1

    def reset(self) -> None:
        for layer in self.layers:
            layer.reset()
        for table in self._tables.values():
            table.start(0)
        self._step = self._visible = None

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last -`tokens_to_remove` tokens, padding counted, and what an interrupted forward pass left."""
        tokens_to_remove = int(tokens_to_remove)
        if tokens_to_remove > 0:
            raise ValueError(f"quire: crop takes minus the number of tokens to remove, got {tokens_to_remove}")
        tokens = max(min(layer.seen for layer in self.layers) + tokens_to_remove, 0)
        lengths = np.full(max(self.batch_size, 0), tokens, np.int64)
        if self._visible is not None:
            self._visible = self._visible[:, :tokens]
            lengths = self._visible.sum(1).cpu().numpy()
        for table in self._tables.values():
            table.shorten(lengths)
        for layer in self.layers:
            layer.shorten(tokens)
        self._step = None

    def activate_past_recording(self) -> None:
        """Keep tokens that have left a window: they may be cropped back into it."""
        for table in self._tables.values():
            table.keeps_all = True

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self._select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._select(torch.arange(max(self.batch_size, 0)).repeat_interleave(repeats))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        indices = torch.as_tensor(indices)
        self._select(torch.arange(max(self.batch_size, 0), device=indices.device)[indices])

    def _select(self, sequences: torch.Tensor) -> None:
        chosen = sequences.cpu().numpy()
        for table in self._tables.values():
            table.select(chosen)
        if self._visible is not None:
            self._visible = self._visible[sequences.to(self._visible.device)]
        for layer in self.layers:
            layer.select_indexer(sequences)
        self._step = None

    def early_initialization(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("quire: a PagedCache takes its pages when tokens come")
