# SPDX-License-Identifier: Apache-2.0
"""The ops of Quire called one by one, with numpy on the CPU: what an engine does for one layer.

Two sequences share a pool of pages. Their prompts are stored and attended to, then both decode: first with a call of
its own, then with a call that was planned once. At the end a latent cache in FP8, as DeepSeek's models have it. With
tensors of torch or CuPy the calls are the same, and on a GPU they run there. Everything is compared with numpy.
"""

import numpy as np

import quire

HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE = 8, 2, 64, 16
rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """In plain numpy, of one sequence: the last query sees all keys. [tokens, heads, columns] each."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    hidden = np.triu(np.ones(scores.shape[1:], bool), k=len(k) - len(q) + 1)
    weights = np.exp(np.where(hidden, -np.inf, scores - scores.max(-1, keepdims=True)))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)


def show(what: str, actual: np.ndarray, expected: np.ndarray, most: float) -> None:
    error = np.abs(actual - expected).max() / np.abs(expected).max()
    assert error < most, f"{what}: {error}"
    print(f"{what}: {list(actual.shape)}, as numpy computes it")


# A pool of 8 pages: [pages, K and V, layers, tokens, heads, columns]. Sequence 0 owns the pages 5 and 2, sequence 1 the
# page 7. The lengths are those before a call; no op changes them.
pool = np.zeros((8, 2, 1, PAGE_SIZE, KV_HEADS, HEAD_DIM), np.float32)
table = np.array([[5, 2], [7, -1]], np.int32)  # -1: no page
lengths = np.zeros(2, np.int32)
cache = quire.PagedKVCache(pool, lengths, table)

# Prompts of 20 and 9 tokens, one after the other without padding: `row_offsets` says where each begins.
prompts, offsets = [20, 9], np.array([0, 20, 29], np.int32)
q, k, v = normal(29, HEADS, HEAD_DIM), normal(29, KV_HEADS, HEAD_DIM), normal(29, KV_HEADS, HEAD_DIM)
quire.store(k, offsets, cache, 0, value=v)  # K and V in one launch
out = quire.flash_attention(q, offsets, cache, 0, mask=quire.causal())
sequences = [slice(0, 20), slice(20, 29)]
expected = np.concatenate([attention(q[s], k[s], v[s], HEAD_DIM**-0.5) for s in sequences])
show("prefill", out, expected, 1e-5)
keys, values = [k[s] for s in sequences], [v[s] for s in sequences]


def next_token() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of both sequences: q, k, v [2, heads, columns]. The numpy side remembers k and v."""
    new = normal(2, HEADS, HEAD_DIM), normal(2, KV_HEADS, HEAD_DIM), normal(2, KV_HEADS, HEAD_DIM)
    for sequence in range(2):
        keys[sequence] = np.concatenate((keys[sequence], new[1][sequence : sequence + 1]))
        values[sequence] = np.concatenate((values[sequence], new[2][sequence : sequence + 1]))
    return new


def decoded(q: np.ndarray) -> np.ndarray:
    return np.concatenate([attention(q[s : s + 1], keys[s], values[s], HEAD_DIM**-0.5) for s in range(2)])


# Decode: one new token each. An engine that keeps slots (page * page_size + row) may store by them.
lengths[:] = prompts
one_each = np.array([0, 1, 2], np.int32)
q, k, v = next_token()
slots = table[[0, 1], lengths // PAGE_SIZE].astype(np.int64) * PAGE_SIZE + lengths % PAGE_SIZE
quire.store(k, cache=cache, value=v, slots=slots)
out, lse = quire.flash_attention(q, one_each, cache, 0, return_lse=True)
show("decode", out, decoded(q), 1e-5)

# The same step again and again: the kernel is chosen once, for the longest lengths to come, and a call names only what
# changed. It reads the lengths and the page table as they are then.
lengths[:] = [2 * PAGE_SIZE - 1, PAGE_SIZE - 1]
step = quire.plan("flash_attention", q, one_each, cache, 0)
print("kernel:", step.plan.kernel)
for count in (1, 2):
    lengths[:] = np.add(prompts, count)
    q, k, v = next_token()
    quire.store(k, one_each, cache, 0, value=v)
    show("planned", step(q=q), decoded(q), 1e-5)

# Latent attention (MLA): one row of 512 + 64 columns for all heads. This format keeps the 512 in e4m3 with a scale for
# each 128, and the 64 of the rotary embedding in bfloat16: 656 bytes. numpy has neither, so the pool is of bytes.
LATENT, ROPE, NOPE, VALUE = 512, 64, 128, 128
row = quire.RowFormat.mla_fp8_block()
fp8_pool = np.zeros((4, 1, 1, PAGE_SIZE, 1, 656), np.uint8)
fp8_cache = quire.PagedKVCache(fp8_pool, lengths[:1] * 0, np.array([[3, 0]], np.int32), row_format=row)
latents = normal(24, 1, LATENT + ROPE)
quire.store(latents, np.array([0, 24], np.int32), fp8_cache, 0)  # 24 tokens, quantized on the way

# The absorbed form: queries go through kv_b_proj's half for K, results through its half for V; K and V are never built.
kv_b_proj = normal(HEADS * (NOPE + VALUE), LATENT) / LATENT**0.5
weights = quire.absorb_kv_b_proj(kv_b_proj, heads=HEADS, nope=NOPE)
fp8_cache.cache_lengths = np.array([23], np.int32)  # the last token is the new one
q = normal(1, HEADS, NOPE + ROPE)
scale = (NOPE + ROPE) ** -0.5
one = np.array([0, 1], np.int32)
out = quire.mla_decode(q, one, fp8_cache, 0, w_uk=weights.w_uk, w_uv=weights.w_uv, scale=scale)

expanded = (latents[:, 0, :LATENT] @ kv_b_proj.T).reshape(24, HEADS, NOPE + VALUE)
rope = np.broadcast_to(latents[:, :, LATENT:], (24, HEADS, ROPE))
k = np.concatenate((expanded[..., :NOPE], rope), axis=-1)
show("latent, FP8", out, attention(q, k, expanded[..., NOPE:], scale), 0.1)  # e4m3 has 3 bits of fraction
