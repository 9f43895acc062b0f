# SPDX-License-Identifier: Apache-2.0
"""The connector step by step, as vLLM's scheduler and worker call it, without an engine around them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from quire_vllm.connector import QuireConnector
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

PAGE, PAGES = 4, 40


class Engine:
    """Both sides of a connector over a cache whose rows say which token was computed there."""

    def __init__(self, folder, role: str, model: str = "model", workers: int = 1, groups: int = 1) -> None:
        transfer = KVTransferConfig(
            kv_connector="QuireConnector", kv_role=role, kv_connector_extra_config={"folder": str(folder)}
        )
        config = SimpleNamespace(
            kv_transfer_config=transfer,
            parallel_config=SimpleNamespace(world_size=workers),
            cache_config=SimpleNamespace(block_size=PAGE, cache_dtype="auto", kv_cache_layout="BLNHC"),
            model_config=SimpleNamespace(model=model, revision=None, dtype=torch.float32),
        )
        pages = SimpleNamespace(num_blocks=PAGES, kv_cache_groups=[None] * groups)
        self.scheduler = QuireConnector(config, KVConnectorRole.SCHEDULER, pages)
        self.worker = QuireConnector(config, KVConnectorRole.WORKER, pages)
        # [page, layer, token, head, column]
        self.cache = torch.zeros(PAGES, 2, PAGE, 1, 3)
        self.worker.register_kv_caches({f"{i}": self.cache[:, i].transpose(1, 2) for i in range(2)})
        self.free = list(range(PAGES - 1, -1, -1))
        self.pages: dict[str, list[int]] = {}
        self.computed: dict[str, int] = {}

    def admit(self, request: SimpleNamespace, local: int = 0, first: int | None = None) -> int:
        """Schedule a waiting request; returns the tokens that come from the store. `local`: it has these already.

        `first`: of its first step, by default all tokens that are left; pages are there before the connector is told.
        """
        found, is_async = self.scheduler.get_num_new_matched_tokens(request, local)
        assert not is_async
        self.pages[request.request_id] = []
        self.computed[request.request_id] = local + found
        self._grow(request, request.num_tokens if first is None else local + found + first)
        blocks = SimpleNamespace(get_block_ids=lambda: (list(self.pages[request.request_id]),))
        self.scheduler.update_state_after_alloc(request, blocks, found)
        return found

    def _grow(self, request: SimpleNamespace, tokens: int) -> list[int]:
        pages = self.pages[request.request_id]
        new = [self.free.pop() for _ in range(-(-tokens // PAGE) - len(pages))]
        pages += new
        return new

    def step(self, request: SimpleNamespace, count: int, is_new: bool, resumed: bool = False) -> None:
        """Compute `count` more tokens."""
        name, before = request.request_id, self.computed[request.request_id]
        new_pages = self._grow(request, before + count)
        cached = SimpleNamespace(
            req_ids=[] if is_new else [name],
            num_computed_tokens=[] if is_new else [before],
            new_block_ids=[] if is_new else [(self.pages[name],) if resumed else (new_pages,) if new_pages else None],
            resumed_req_ids={name} if resumed else set(),
        )
        new = [SimpleNamespace(req_id=name, num_computed_tokens=before)] if is_new else []
        output = SimpleNamespace(
            scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens={name: count}
        )
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(output))
        self.worker.start_load_kv(None)
        for position in range(before, before + count):
            page, row = self.pages[name][position // PAGE], position % PAGE
            self.cache[page, :, row] = request.all_token_ids[position]
        self.worker.wait_for_save()
        self.worker.clear_connector_metadata()
        self.computed[name] = before + count

    def rows(self, request: SimpleNamespace, count: int) -> list[float]:
        pages = self.cache[self.pages[request.request_id]]
        return pages[:, 1, :, 0, 2].flatten()[:count].tolist()


def request(name: str, tokens: list[int], more: tuple[int, ...] = (), **fields) -> SimpleNamespace:
    plain = {"mm_features": [], "lora_request": None, "prompt_embeds": None, "cache_salt": None}
    return SimpleNamespace(
        request_id=name,
        prompt_token_ids=tokens,
        all_token_ids=[*tokens, *more],
        num_prompt_tokens=len(tokens),
        num_tokens=len(tokens) + len(more),
        **(plain | fields),
    )


PROMPT = list(range(10, 21))  # two pages and three tokens


def produced(folder, tokens=PROMPT, chunks=None, **fields) -> Engine:
    engine, asked = Engine(folder, "kv_producer"), request("a", tokens, **fields)
    chunks = chunks or (len(tokens),)
    assert engine.admit(asked, first=chunks[0]) == 0
    for i, count in enumerate(chunks):
        engine.step(asked, count, is_new=i == 0)
    return engine


@pytest.mark.parametrize("chunks", [(11,), (3, 8), (8, 2, 1)])
def test_a_prompt_is_taken_over(chunks, tmp_path):
    """In one step or in chunks: pages are written when the last chunk is there."""
    first = produced(tmp_path, chunks=chunks)
    assert first.worker.num_saved == 3
    second, asked = Engine(tmp_path, "kv_consumer"), request("b", PROMPT)
    assert second.admit(asked) == len(PROMPT) - 1
    second.step(asked, 1, is_new=True)
    assert second.rows(asked, len(PROMPT)) == PROMPT
    assert second.worker.num_loaded == 3 and second.worker.runs_per_page == 1


def test_whole_pages(tmp_path):
    produced(tmp_path, PROMPT[:8])
    second, asked = Engine(tmp_path, "kv_consumer"), request("b", PROMPT[:8])
    assert second.admit(asked) == 7
    second.step(asked, 1, is_new=True)
    assert second.rows(asked, 8) == PROMPT[:8] and second.worker.num_loaded == 2


def test_a_prompt_that_begins_alike(tmp_path):
    """Whole pages of it are taken over; what is left is computed."""
    produced(tmp_path)
    second, asked = Engine(tmp_path, "kv_both"), request("b", [*PROMPT[:9], 90, 91, 92, 93, 94])
    assert second.admit(asked) == 8
    second.step(asked, 6, is_new=True)
    assert second.rows(asked, 14) == asked.prompt_token_ids
    assert second.worker.num_loaded == 2 and second.worker.num_saved == 2  # and given on: what was not there


def test_what_an_engine_has_itself_is_not_loaded(tmp_path):
    produced(tmp_path)
    second, asked = Engine(tmp_path, "kv_consumer"), request("b", PROMPT)
    assert second.admit(asked, local=PAGE) == len(PROMPT) - 1 - PAGE
    second.step(asked, 1, is_new=True)
    assert second.worker.num_loaded == 2
    assert second.rows(asked, len(PROMPT))[PAGE:] == PROMPT[PAGE:]


def test_a_preempted_request_comes_back(tmp_path):
    """With tokens that it had generated: all of the prompt comes from the store, into other pages."""
    produced(tmp_path)
    second, asked = Engine(tmp_path, "kv_both"), request("b", PROMPT)
    second.admit(asked)
    second.step(asked, 1, is_new=True)
    again = request("b", PROMPT, more=(70, 71))
    assert second.admit(again) == len(PROMPT)
    second.step(again, 2, is_new=False, resumed=True)
    assert second.rows(again, 13) == [*PROMPT, 70, 71]


def test_pages_that_are_gone_are_reported(tmp_path):
    produced(tmp_path)
    second, asked = Engine(tmp_path, "kv_consumer"), request("b", PROMPT)
    second.admit(asked)
    gone = second.scheduler._prompts["b"].keys[1]
    (tmp_path / gone).unlink()
    second.step(asked, 1, is_new=True)
    assert second.worker.get_block_ids_with_load_errors() == {second.pages["b"][1]}
    assert second.worker.get_block_ids_with_load_errors() == set()


@pytest.mark.parametrize(
    "fields", [{"lora_request": "adapter"}, {"mm_features": ["image"]}, {"prompt_embeds": torch.zeros(1)}]
)
def test_rows_that_depend_on_more_than_tokens_stay(fields, tmp_path):
    produced(tmp_path)
    assert Engine(tmp_path, "kv_both").scheduler.get_num_new_matched_tokens(request("b", PROMPT, **fields), 0)[0] == 0


@pytest.mark.parametrize(("model", "salt"), [("another", None), ("model", "someone's")])
def test_another_model_or_salt_finds_nothing(model, salt, tmp_path):
    produced(tmp_path)
    assert Engine(tmp_path, "kv_consumer", model=model).admit(request("b", PROMPT, cache_salt=salt)) == 0


def test_a_producer_takes_nothing_and_a_consumer_gives_nothing(tmp_path):
    produced(tmp_path)
    assert Engine(tmp_path, "kv_producer").admit(request("b", PROMPT)) == 0
    second, asked = Engine(tmp_path / "other", "kv_consumer"), request("b", PROMPT)
    second.admit(asked)
    second.step(asked, len(PROMPT), is_new=True)
    assert second.worker.num_saved == 0 and not list((tmp_path / "other").iterdir())


def test_finished_requests_are_forgotten(tmp_path):
    engine = produced(tmp_path)
    assert engine.scheduler.request_finished(request("a", PROMPT), []) == (False, None)
    assert not engine.scheduler._prompts and not engine.scheduler._begins


@pytest.mark.parametrize(
    ("settings", "words"), [({"workers": 2}, "got 2 workers"), ({"groups": 2}, "several KV cache groups")]
)
def test_refused(settings, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        Engine(tmp_path, "kv_both", **settings)
