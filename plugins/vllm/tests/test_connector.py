# SPDX-License-Identifier: Apache-2.0
"""Pages that one engine computed and another one decodes from."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch
from engines import Failed, finished, generate, mixed_job, started
from quire_vllm.page_store import PageMemory, PageStore, page_keys

PAGE = 32
# Less than a page, whole pages, a page and a token, and two prompts that begin alike.
LENGTHS = (5, 64, 33, 120, 190, 200)
ALIKE = 100  # first tokens of the last two


# Names ----------------------------------------------------------------------------------------------------------------


def test_a_page_is_named_by_all_tokens_up_to_its_end():
    tokens = list(range(100))
    keys = page_keys(tokens, 32, "model")
    assert len(keys) == 4 and len(set(keys)) == 4
    assert page_keys(tokens[:96], 32, "model") == keys[:3]
    assert page_keys([*tokens[:40], 0, *tokens[41:]], 32, "model")[0] == keys[0]
    assert not set(page_keys([1, *tokens[1:]], 32, "model")) & set(keys)
    assert not set(page_keys(tokens, 32, "another")) & set(keys)
    # A page that is not full is another one than the same page with more tokens.
    assert page_keys(tokens[:99], 32, "model")[3] != keys[3]


# Bytes ----------------------------------------------------------------------------------------------------------------


def caches(order: str, layers: int = 3, pages: int = 5) -> dict[str, torch.Tensor]:
    """Layers [pages, heads, tokens, columns] of one allocation, as vLLM makes them in this order of memory."""
    sizes = {"L": layers, "B": pages, "H": 2, "N": 4, "C": 6}
    memory = torch.randn([sizes[axis] for axis in order])
    logical = memory.permute([order.index(axis) for axis in "LBHNC"])
    return {f"layer {i}": logical[i] for i in range(layers)}


@pytest.mark.parametrize(("order", "copies"), [("BLNHC", 1), ("BLHNC", 1), ("LBNHC", 3), ("LBHNC", 3)])
def test_pages_go_from_one_cache_to_another(order, copies, tmp_path):
    """A page of all layers, and nothing else, whatever page of the other cache it becomes."""
    given, taken = caches(order), caches(order)
    before = {name: cache.clone() for name, cache in taken.items()}
    mine, theirs, store = PageMemory(given, 5), PageMemory(taken, 5), PageStore(tmp_path)
    assert len(mine.runs) == copies
    store.save("key", mine, 3)
    store.load("key", theirs, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert store.path("key").stat().st_size == mine.page_bytes == 3 * 2 * 4 * 6 * 4
    for name, cache in taken.items():
        assert torch.equal(cache[1], given[name][3])
        others = [0, 2, 3, 4]
        assert torch.equal(cache[others], before[name][others])


def test_layers_that_share_a_cache_are_moved_once():
    shared = caches("BLNHC")
    alone = PageMemory(shared, 5).page_bytes
    shared["layer 3"] = shared["layer 1"]
    assert PageMemory(shared, 5).page_bytes == alone


def test_refused_memory():
    with pytest.raises(ValueError, match="whole runs of memory"):
        PageMemory(caches("LHBNC"), 5)
    with pytest.raises(ValueError, match="10 pages was expected, got 5"):
        PageMemory(caches("BLNHC"), 10)


def test_a_short_file_is_no_page():
    with pytest.raises(OSError, match="too short"):
        PageMemory(caches("BLNHC"), 5).read(0, io.BytesIO(bytes(100)))


def test_pages_are_there_up_to_the_first_gap(tmp_path):
    store, memory = PageStore(tmp_path), PageMemory(caches("BLNHC"), 5)
    for key in "abd":
        store.save(key, memory, 0)
    assert store.count(list("abcd")) == 2 and store.count(list("ba")) == 2 and store.count([]) == 0


# Engines --------------------------------------------------------------------------------------------------------------


def prompts() -> list[list[int]]:
    draw = random.Random(1)
    found = [[draw.randrange(2, 512) for _ in range(length)] for length in LENGTHS]
    found[-1][:ALIKE] = found[-2][:ALIKE]
    return found


def job(model: Path, asked: list[list[int]], tokens: int, role: str | None = None, folder: Path | None = None):
    made = mixed_job(model, "float32", num_gpu_blocks_override=96, block_size=PAGE)
    made["rounds"] = [{"sampling": {"max_tokens": tokens, "logprobs": 1}, "prompts": asked}]
    if role is not None:
        made["engine"]["kv_transfer_config"] = {
            "kv_connector": "QuireConnector",
            "kv_connector_module_path": "quire_vllm.connector",
            "kv_role": role,
            "kv_connector_extra_config": {"folder": str(folder)} if folder is not None else {},
        }
    return made


def num_pages(asked: list[list[int]], without: int = 0) -> int:
    """Different pages of all prompts but their last tokens: where they begin alike they share them."""
    return len({key for p in asked for key in page_keys(p, PAGE, "")[: -(-(len(p) - without) // PAGE)]})


@pytest.fixture(scope="module")
def handed_over(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two engines that live at the same time, and one that does all itself."""
    folder = tmp_path_factory.mktemp("connector")
    model, asked, pages = checkpoints.write(folder / "model", "llama"), prompts(), folder / "pages"
    is_decoded = folder / "decoded"
    prefill = job(model, asked, 1, "kv_producer", pages) | {"until": str(is_decoded)}
    decode = job(model, asked, 24, "kv_consumer", pages) | {"after": str(folder / "prefill" / "result.json")}
    processes = {name: started(folder / name, made, True) for name, made in (("prefill", prefill), ("decode", decode))}
    try:
        decoded = finished(processes["decode"])
        assert processes["prefill"].poll() is None  # it was there all the time
        is_decoded.touch()
        return {
            "prefill": finished(processes["prefill"]),
            "decode": decoded,
            "one": generate(folder / "one", job(model, asked, 24), True),
            "files": sorted(path.stat().st_size for path in pages.iterdir()),
        }
    finally:
        for process in processes.values():
            process.kill()


def test_the_same_tokens_as_one_engine(handed_over):
    for ours, one in zip(handed_over["decode"]["rounds"][0], handed_over["one"]["rounds"][0], strict=True):
        assert ours["tokens"] == one["tokens"] and len(one["tokens"]) == 24
        assert ours["logprobs"] == pytest.approx(one["logprobs"], abs=2e-3)
    assert handed_over["decode"]["implementations"] == ["QuireAttention"]


def test_the_prompt_is_not_computed_again(handed_over):
    """But for its last token, whose logits are those of the first new one. Pages that two prompts share come once."""
    assert [answer["cached"] for answer in handed_over["decode"]["rounds"][0]] == [n - 1 for n in LENGTHS]
    counters, shared = handed_over["decode"]["counters"], ALIKE // PAGE * PAGE
    assert counters["vllm:prefix_cache_hits"] == shared
    assert counters["vllm:external_prefix_cache_hits"] == sum(LENGTHS) - len(LENGTHS) - shared
    assert handed_over["prefill"]["counters"].get("vllm:external_prefix_cache_hits", 0) == 0


def test_a_page_of_all_layers_is_one_copy(handed_over):
    asked = prompts()
    (written,), (read,) = handed_over["prefill"]["moved"], handed_over["decode"]["moved"]
    assert written == {"saved": num_pages(asked), "loaded": 0, "copies": 1}
    assert read == {"saved": 0, "loaded": num_pages(asked, without=1), "copies": 1}
    assert num_pages(asked, without=1) < num_pages(asked)  # one that has the last token alone is not read
    layers, heads, columns = 3, 2, 32
    assert handed_over["files"] == [layers * PAGE * heads * 2 * columns * 4] * num_pages(asked)


def test_refused_configuration(tmp_path):
    model = checkpoints.write(tmp_path / "model", "llama")
    with pytest.raises(Failed, match="quire: kv_connector_extra_config must have a 'folder'"):
        generate(tmp_path / "run", job(model, prompts(), 1, "kv_producer"), True)
