# SPDX-License-Identifier: Apache-2.0
"""store by slots, K and V in one call, against torch's index_put on the same pool."""

import numpy as np
import pytest
import quire
import torch

PAGES, LAYERS, PAGE_SIZE, HEADS, WIDTH, TOKENS = 7, 3, 16, 4, 64, 41


@pytest.fixture
def device():
    return torch.get_default_device().type

def make_slots(dtype, device):
    """Every slot once, in any order; some tokens are skipped."""
    generator = torch.Generator("cpu").manual_seed(3)
    slots = torch.randperm(PAGES * PAGE_SIZE, generator=generator, device="cpu")[:TOKENS]
    slots[5::9] = -1
    slots[7] = -PAGE_SIZE
    return slots.to(dtype).to(device)


def qkv_parts(dtype, device, q_heads=8):
    """K and V as views of what one projection wrote."""
    generator = torch.Generator("cpu").manual_seed(4)
    qkv = torch.randn(TOKENS, (q_heads + 2 * HEADS) * WIDTH, generator=generator, device="cpu").to(dtype).to(device)
    _, k, v = qkv.split([q_heads * WIDTH, HEADS * WIDTH, HEADS * WIDTH], dim=-1)
    return k.view(TOKENS, HEADS, WIDTH), v.view(TOKENS, HEADS, WIDTH)


def put(blocks, layer, slots, k, v):
    """What index_put leaves: the outside oracle."""
    blocks = blocks.clone()
    kept = slots >= 0
    page, row = slots[kept].long() // PAGE_SIZE, slots[kept].long() % PAGE_SIZE
    for side, rows in enumerate((k, v)):
        index = (page, torch.full_like(page, side), torch.full_like(page, layer), row)
        blocks.index_put_(index, rows[kept].to(blocks.dtype))
    return blocks


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).cpu()


def pool(dtype, device, heads_first):
    shape = (PAGES, 2, LAYERS, HEADS, PAGE_SIZE, WIDTH) if heads_first else (PAGES, 2, LAYERS, PAGE_SIZE, HEADS, WIDTH)
    blocks = torch.randn(shape).to(dtype).to(device)
    return blocks.transpose(3, 4) if heads_first else blocks


@pytest.mark.parametrize("heads_first", [False, True], ids=["nhd", "hnd"])
@pytest.mark.parametrize("slot_dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize(("x_dtype", "dtype"), [
    (torch.bfloat16, torch.bfloat16), (torch.float16, torch.float16), (torch.float32, torch.bfloat16),
    (torch.bfloat16, torch.float8_e4m3fn),
])  # fmt: skip
def test_keys_and_values_lie_where_index_put_puts_them(x_dtype, dtype, slot_dtype, heads_first, device):
    blocks, slots = pool(dtype, device, heads_first), make_slots(slot_dtype, device)
    k, v = qkv_parts(x_dtype, device)
    expected = put(blocks, 1, slots, k, v)
    quire.store(k, cache=quire.PagedKVCache(blocks), layer=1, value=v, slots=slots)
    assert torch.equal(bits(blocks), bits(expected))


def test_one_side_by_slots(device):
    blocks, slots = pool(torch.bfloat16, device, False), make_slots(torch.int64, device)
    k, v = qkv_parts(torch.bfloat16, device)
    expected = put(blocks, 2, slots, k, v)
    quire.store(k, cache=quire.PagedKVCache(blocks), layer=2, slots=slots)
    quire.store(v, cache=quire.PagedKVCache(blocks), layer=2, slots=slots, side="value")
    assert torch.equal(bits(blocks), bits(expected))


def test_vllms_layout(device):
    """[pages, heads, page, 2 · width] with K before V in a row, fp8 with one static scale for each."""
    kv = torch.zeros(PAGES, HEADS, PAGE_SIZE, 2 * WIDTH, dtype=torch.float8_e4m3fn, device=device)
    blocks = kv.unflatten(-1, (2, WIDTH)).permute(0, 3, 2, 1, 4).unsqueeze(2)
    scale = torch.tensor([0.5, 2.0], device=device)
    scales = scale.view(1, 2, 1, 1, 1, 1).expand(PAGES, 2, 1, PAGE_SIZE, HEADS, 1)
    cache = quire.PagedKVCache(blocks, scales=scales, static_scales=True)
    k, v = qkv_parts(torch.bfloat16, device)
    slots = make_slots(torch.int64, device)
    expected = put(blocks, 0, slots, k / 0.5, v / 2.0)
    quire.store(k, cache=cache, value=v, slots=slots)
    assert torch.equal(bits(blocks), bits(expected))
    assert scale.tolist() == [0.5, 2.0]


def test_keys_and_values_by_lengths(device):
    blocks = pool(torch.bfloat16, device, False)
    table = torch.tensor([[6, 1], [2, 4]], dtype=torch.int32, device=device)
    cache = quire.PagedKVCache(blocks, torch.tensor([9, 3], dtype=torch.int32, device=device), table)
    offsets = torch.tensor([0, 20, TOKENS - 16], dtype=torch.int32, device=device)
    k, v = (part[: TOKENS - 16] for part in qkv_parts(torch.bfloat16, device))
    positions = torch.cat([torch.arange(9, 29), torch.arange(3, 8)]).to(device)
    pages = torch.cat([table[0][positions[:20] // 16], table[1][positions[20:] // 16]])
    expected = put(blocks, 1, pages * PAGE_SIZE + positions % PAGE_SIZE, k, v)
    quire.store(k, offsets, cache, 1, value=v)
    assert torch.equal(bits(blocks), bits(expected))


def test_a_slot_past_the_pool_is_an_error_on_the_host_and_skipped_on_a_gpu(device):
    blocks, slots = pool(torch.bfloat16, device, False), make_slots(torch.int64, device)
    k, v = qkv_parts(torch.bfloat16, device)
    before, cache = blocks.clone(), quire.PagedKVCache(blocks)
    slots[3] = PAGES * PAGE_SIZE
    slots[4] = 2**62
    if device == "cpu":
        with pytest.raises(ValueError, match=r"store: 'slots' must be below 112 .* got 112 at \[3\]"):
            quire.store(k, cache=cache, value=v, slots=slots)
        assert torch.equal(bits(blocks), bits(before))
        return
    quire.store(k, cache=cache, value=v, slots=slots)
    slots[3:5] = -1
    assert torch.equal(bits(blocks), bits(put(before, 0, slots, k, v)))


def test_what_is_missing_is_named():
    x = np.zeros((1, HEADS, WIDTH), np.float32)
    cache = quire.PagedKVCache(np.zeros((1, 2, 1, PAGE_SIZE, HEADS, WIDTH), np.float32))
    with pytest.raises(ValueError, match="store: 'row_offsets' must be given: .*, or slots instead, got none"):
        quire.store(x, cache=cache)
    with pytest.raises(ValueError, match="store: 'cache.cache_lengths' must be given"):
        quire.store(x, np.array([0, 1], np.uint32), cache)
    with pytest.raises(TypeError, match="store: 'cache' must be a quire.PagedKVCache"):
        quire.store(x, slots=np.array([0]))
    with pytest.raises(ValueError, match="flash_attention: 'cache.cache_lengths' must be given"):
        quire.flash_attention(x, np.array([0, 1], np.uint32), cache, 0)
    assert "batch 0" in repr(cache)
