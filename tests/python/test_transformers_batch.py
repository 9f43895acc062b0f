# SPDX-License-Identifier: Apache-2.0
"""generate_batch: continuous batching on the paged cache of transformers, read and written by Quire."""

import copy
from types import SimpleNamespace

import pytest
import torch
import transformers
from outside import seeded
from outside.generation import NEW, generate
from outside.tiny_models import left_padded, prompts, rival_of, tiny_model
from transformers import GenerationConfig
from transformers.generation.continuous_batching.input_outputs import ContinuousBatchingIOs

import quire
import quire.integrations.transformers as integration
from quire.integrations.transformers import continuous, registration
from quire.integrations.transformers.rings import ring_table

integration.register()

HAS_ALLOCATORS = hasattr(transformers.generation.continuous_batching.initialization, "ATTN_TYPE_TO_ALLOCATOR")
# The experts of transformers copy from the host, which no graph can capture; and a graph's replays are not counted.
EAGER = {"use_cuda_graph": False}
OPTIONS = {"gpt_oss": EAGER}
NAMES = ["llama", "qwen3", "gemma3", "gemma2", "gpt_oss"]


@pytest.fixture
def calls(monkeypatch):
    """Counts what continuous.py and it calls of Quire."""
    found = []

    def watch(owner, name):
        whole = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: found.append((name, k)) or whole(*a, **k))

    for name in ("_read_block_table", "_read_indices", "_read_back", "_attend_rows", "ring_table"):
        watch(continuous, name)
    for name in ("store", "flash_attention"):
        watch(quire, name)
    return found


def count(calls, name):
    return sum(found == name for found, _ in calls)


def generate_batch(model, requests, tokens_at_once, new=NEW, **options):
    page = {"page_size": 16} if HAS_ALLOCATORS else {"block_size": 16}
    config = transformers.ContinuousBatchingConfig(
        num_blocks=48, max_batch_tokens=tokens_at_once, max_memory_percent=0.5, **page, **options
    )
    settings = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=-1, pad_token_id=0)
    results = model.generate_batch(
        requests, generation_config=settings, continuous_batching_config=config, progress_bar=False
    )
    return [results[name] for name in sorted(results, key=lambda name: int(name.rsplit("_", 1)[1]))]


@pytest.mark.parametrize("tokens_at_once", [24, 256], ids=["chunked", "whole"])
@pytest.mark.parametrize("name", NAMES)
def test_generate_batch(name, tokens_at_once):
    """Requests of many lengths, two with a common beginning, prompts in pieces between tokens that are decoded."""
    model = tiny_model(name)
    requests = prompts((37, 5, 16, 23))
    requests.append(requests[0][:32] + [3, 4, 5])
    settings = dict(max_new_tokens=12)
    expected = [generate(model, rival_of(name), left_padded([r]), **settings)[0, len(r) :].tolist() for r in requests]
    model.set_attn_implementation("quire")
    results = generate_batch(model, requests, tokens_at_once, new=12, **OPTIONS.get(name, {}))
    assert [result.generated_tokens for result in results] == expected
    assert model.config._attn_implementation == "quire"


@pytest.mark.skipif(torch.get_default_device().type != "cuda", reason="the CPU has no streams")
def test_inputs_are_not_reset_after_the_first_batch_is_there(monkeypatch):
    """However late a loaded GPU comes to what transformers queues on the current stream."""
    reset = ContinuousBatchingIOs._reset_static_tensors

    def reset_late(io, full_reset=False):
        if full_reset and io.device.type == "cuda":
            torch.cuda._sleep(500_000_000)  # cycles: a quarter of a second
        reset(io, full_reset)

    monkeypatch.setattr(ContinuousBatchingIOs, "_reset_static_tensors", reset_late)
    model, (request,) = tiny_model("llama"), prompts((37,))
    expected = generate(model, "sdpa", left_padded([request]), max_new_tokens=12)[0, len(request) :].tolist()
    model.set_attn_implementation("quire")
    (result,) = generate_batch(model, [request], 256, new=12)
    assert result.generated_tokens == expected


@pytest.mark.parametrize(
    "attention, device, waits",
    [("quire_flash", "cuda:0", True), ("quire_flash", "cpu", False), ("sdpa", "cuda:0", False)],
)
def test_only_a_gpu_of_quire_waits_for_the_batch_processor(attention, device, waits, monkeypatch):
    found = []

    def stream(device):
        return SimpleNamespace(synchronize=lambda: found.append(f"waited for {device}"))

    def make(manager):
        found.append("made")
        return manager

    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation=attention), device=torch.device(device))
    manager = SimpleNamespace(model=model)
    assert registration._create_batch_processor(make, manager) is manager
    assert found == ["made", "waited for cuda:0"][: 1 + waits]


@pytest.mark.parametrize("name", NAMES)
def test_log_probabilities(name):
    """Of the tokens that generate_batch chose in bfloat16: no further from float32 than twice what sdpa is."""
    model = tiny_model(name, steady=True).to(torch.bfloat16)
    requests = prompts((37, 5, 16, 23, 30, 12))
    model.set_attn_implementation("quire")
    results = generate_batch(model, requests, 24, new=12, return_logprobs=True, **OPTIONS.get(name, {}))

    @torch.no_grad()
    def forced(judge):
        judge.set_attn_implementation(rival_of(name))
        rows = []
        for request, result in zip(requests, results, strict=True):
            logits = judge(torch.tensor([request + result.generated_tokens])).logits[0, len(request) - 1 : -1]
            chosen = torch.tensor(result.generated_tokens)[:, None]
            rows.append(logits.double().log_softmax(-1).gather(1, chosen)[:, 0])
        return torch.cat(rows)

    exact, theirs = forced(copy.deepcopy(model).float()), forced(model)
    ours = torch.tensor([p for result in results for p in result.logprobs], dtype=torch.float64)

    def distance(x):
        return (x - exact).square().mean().sqrt().item()

    assert 0 < distance(theirs) < 0.2
    assert distance(ours) <= 2 * distance(theirs)


@pytest.mark.skipif(not HAS_ALLOCATORS, reason="this version has no block tables")
def test_block_tables_for_decoding_and_indices_otherwise(calls):
    model = tiny_model("llama")
    model.set_attn_implementation("quire")
    generate_batch(model, prompts((20, 9, 33)), 24, **EAGER)
    tables, indices = count(calls, "_read_block_table"), count(calls, "_read_indices")
    assert tables > 10 and indices >= 3  # made by the first layer, for all


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_every_layer_stores_and_attends_once(name, calls):
    """K and V in one launch, pages in place: whole prompts, then decoding, nothing is read back."""
    model, new = tiny_model(name), 12
    model.set_attn_implementation("quire")
    generate_batch(model, prompts((20, 9, 33)), 256, new=new, **EAGER)
    layers = model.config.num_hidden_layers
    assert count(calls, "store") == count(calls, "flash_attention") == layers * new
    assert all(given.get("value") is not None for found, given in calls if found == "store")
    assert count(calls, "_read_back") == 0
    if name == "gemma3":
        assert count(calls, "_attend_rows") == 2  # its layers with a window, while prompts are new
        assert count(calls, "ring_table") == new - 1


def test_prompts_in_pieces_read_a_ring_back(calls):
    model = tiny_model("gemma3")
    model.set_attn_implementation("quire")
    generate_batch(model, prompts((20, 9, 33)), 24, **EAGER)
    rings, attended = count(calls, "_read_back"), count(calls, "flash_attention")
    assert 0 < rings < attended / 4


@pytest.mark.parametrize("window, page_size", [(9, 4), (8, 4), (5, 16), (12, 1), (7, 7)])
def test_ring_table(window, page_size):
    """Beside a ring that is filled token by token."""
    stride, num_pages = 3 * page_size, -(-window // page_size)
    blocks = torch.randperm(200, generator=seeded(window)).tolist()
    befores = [0, 1, 4, window - 1, window, window + 1, 2 * window, 2 * window + 3, 40]
    read, written, offsets = [], [], [0]
    for request, before in enumerate(befores):
        own = blocks[request * num_pages : (request + 1) * num_pages]

        def row(position, own=own):
            slot = position % window
            return own[slot // page_size] * stride + slot % page_size

        read += [row(position) for position in range(max(before - window + 1, 0), before)] + [999999]
        written.append(row(before))
        offsets.append(len(read))
    lists = (torch.tensor(x) for x in (read, written, offsets, befores))
    found = (ring_table(*lists, window, page_size) // stride).tolist()
    for request, before in enumerate(befores):
        there = min(before, window - 1) // page_size + 1
        expected = blocks[request * num_pages : request * num_pages + there] + [-1] * (num_pages - there)
        assert found[request] == expected


def test_generate_batch_does_not_serve_latents():
    model = tiny_model("deepseek_v3")
    model.set_attn_implementation("quire")
    (result,) = generate_batch(model, prompts((9,)), 64, new=2)
    assert "latent attention; use generate()" in result.error
