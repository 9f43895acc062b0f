# SPDX-License-Identifier: Apache-2.0
"""A KV connector: one engine prefills, another one takes over the pages and decodes.

    --kv-transfer-config '{"kv_connector": "QuireConnector", "kv_connector_module_path": "quire_vllm.connector",
                           "kv_role": "kv_producer", "kv_connector_extra_config": {"folder": "/dev/shm/pages"}}'

A producer writes the pages of a prompt at the end of the step that completes it; a consumer whose prompt begins with
pages that are there reads them before its own first step, and computes what is left: the last token, where all of
the prompt was there. It asks vLLM for the layout that has all layers of a page side by side, so that a page is one
copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)

from quire_vllm.page_store import PageMemory, PageStore, page_keys


@dataclass
class Moves(KVConnectorMetadata):
    """What a step's worker does: names of pages, and the page of the cache that each is."""

    loads: list[tuple[str, int]] = field(default_factory=list)
    saves: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class _Prompt:
    """A request whose pages may be moved."""

    keys: list[str]
    tokens: int
    pages: list[int]
    is_saved: bool = False


class QuireConnector(KVConnectorBase_V1):
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        folder = self._kv_transfer_config.get_from_extra_config("folder", None)
        if not folder:
            raise ValueError("quire: kv_connector_extra_config must have a 'folder' for pages")
        parallel = vllm_config.parallel_config
        if parallel.world_size > 1:
            raise ValueError(f"quire: pages of one worker are moved, got {parallel.world_size} workers")
        if kv_cache_config is not None and len(kv_cache_config.kv_cache_groups) > 1:
            raise ValueError("quire: pages of one kind are moved, got several KV cache groups")
        self._store = PageStore(folder)
        self._page_size = vllm_config.cache_config.block_size
        self._salt = _model_of(vllm_config)
        self._prompts: dict[str, _Prompt] = {}
        self._begins: dict[str, int] = {}  # tokens that a request has without those of the store
        self._loads: list[tuple[str, int]] = []
        self._memory: PageMemory | None = None
        self._failed: set[int] = set()
        self.num_loaded = self.num_saved = 0  # pages that this worker moved

    @property
    def requires_kv_delivery(self) -> bool:
        """No: pages are written within the step, and what is missing is computed."""
        return False

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: Any) -> str | None:
        """Pages outermost, then layers. Before vLLM named such layouts, each layer of a page is a copy."""
        try:
            from vllm.v1.kv_cache_layout import KVCacheLayout
        except ImportError:
            return None
        return KVCacheLayout.BLNHC.name

    # In the worker ----------------------------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._memory = PageMemory(kv_caches, self._kv_cache_config.num_blocks)

    @property
    def runs_per_page(self) -> int:
        """Copies that a page takes."""
        return len(self._memory.runs)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        for key, page in self._moves().loads:
            try:
                self._store.load(key, self._memory, page)
                self.num_loaded += 1
            except OSError:  # gone since the scheduler saw it
                self._failed.add(page)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """All layers are there when `start_load_kv` returns."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Pages are written whole, when all layers are there."""

    def wait_for_save(self) -> None:
        for key, page in self._moves().saves:
            if not self._store.holds(key):
                self._store.save(key, self._memory, page)
                self.num_saved += 1

    def get_block_ids_with_load_errors(self) -> set[int]:
        failed, self._failed = self._failed, set()
        return failed

    def _moves(self) -> Moves:
        moves = self._get_connector_metadata()
        assert isinstance(moves, Moves)
        return moves

    # In the scheduler -------------------------------------------------------------------------------------------------

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        keys = self._keys_of(request)
        if not keys or not self._kv_transfer_config.is_kv_consumer:
            return 0, False
        found = min(self._store.count(keys) * self._page_size, request.num_prompt_tokens)
        # The model must run for one token at least, whose logits are the next one's.
        self._begins[request.request_id] = num_computed_tokens
        return max(min(found, request.num_tokens - 1) - num_computed_tokens, 0), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        keys = self._keys_of(request)
        if not keys:
            return
        (pages,) = blocks.get_block_ids()
        self._prompts[request.request_id] = _Prompt(keys, request.num_prompt_tokens, list(pages))
        begin = self._begins.pop(request.request_id, 0)
        if num_external_tokens > 0:
            first, last = begin // self._page_size, -(-(begin + num_external_tokens) // self._page_size)
            self._loads += zip(keys[first:last], pages[first:last], strict=True)

    def build_connector_meta(self, scheduler_output: Any) -> Moves:
        moves, self._loads = Moves(loads=self._loads), []
        if not self._kv_transfer_config.is_kv_producer:
            return moves
        cached = scheduler_output.scheduled_cached_reqs
        computed = {new.req_id: new.num_computed_tokens for new in scheduler_output.scheduled_new_reqs}
        for name, count, pages in zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True):
            computed[name] = count
            if pages is not None and name in self._prompts and name not in cached.resumed_req_ids:
                self._prompts[name].pages += pages[0]
        for name, count in scheduler_output.num_scheduled_tokens.items():
            prompt = self._prompts.get(name)
            if prompt is not None and not prompt.is_saved and computed[name] + count >= prompt.tokens:
                moves.saves += zip(prompt.keys, prompt.pages, strict=False)
                prompt.is_saved = True
        return moves

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        self._prompts.pop(request.request_id, None)
        self._begins.pop(request.request_id, None)
        return False, None

    def _keys_of(self, request: Any) -> list[str]:
        """Names of a prompt's pages; none where rows depend on more than tokens."""
        if request.mm_features or request.lora_request is not None or request.prompt_embeds is not None:
            return []
        known = self._prompts.get(request.request_id)
        if known is not None:
            return known.keys
        salt = f"{self._salt}/{getattr(request, 'cache_salt', None) or ''}"
        return page_keys(request.prompt_token_ids, self._page_size, salt)


def _model_of(vllm_config: Any) -> str:
    """What rows of K and V depend on beside tokens."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    layout = getattr(cache, "kv_cache_layout", None)
    return f"{model.model}/{model.revision}/{model.dtype}/{cache.cache_dtype}/{layout}"
