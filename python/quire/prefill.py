# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention of many new tokens: the fused prefill branch and its plan."""

from __future__ import annotations

from dataclasses import dataclass

from quire import _quire
from quire._call import flag, refuse_type, refuse_value, run, running, whole_number
from quire._tensor import Array, activation_dtype, dtype_name, empty, size
from quire.cache import PagedKVCache, is_cache
from quire.masks import Mask


@dataclass(frozen=True, eq=False)
class MlaPrefillPlan:
    """Where each sequence's keys stand in the gathered buffer, chunk by chunk."""

    buffer_row_offsets: Array  # uint32 [max_chunks, batch + 1]
    cache_offsets: Array  # uint32 [max_chunks, batch + 1]: first key of each sequence in the chunk
    buffer_lengths: Array  # int32 [max_chunks]: rows in use, -1 = chunk unused
    buffer_tokens: int
    decode_tokens: int = 0  # sequences of at most so many new tokens have no rows here: they are decoded


def mla_prefill_plan(
    row_offsets: Array,
    cache: PagedKVCache,
    layer: int,
    *,
    buffer_tokens: int = 16384,
    decode_tokens: int = 0,
    max_chunks: int | None = None,
) -> MlaPrefillPlan:
    """Cut the keys of a batch into chunks that fit the gather buffer of `mla_prefill`.

    Every sequence's keys are rounded up to whole pages and laid end to end; the line is cut every `buffer_tokens`.
    One plan serves all layers.

    Parameters
    ----------
    row_offsets : uint32 array [batch + 1]
    cache, layer : PagedKVCache, int
    buffer_tokens : int
        Rows of the gather buffer.
    decode_tokens : int
        0 to 8. Sequences of at most so many new tokens are left out, and `mla_prefill` decodes them as `mla_decode`
        would, in the same call: a batch may mix prefill and decode.
    max_chunks : int, optional
        Chunks to make room for. By default as many as the lengths need where those are on the host; where they are on
        a device nothing waits for them, and the default is what full page tables need, batch * max_pages * page_size
        tokens. Unused chunks cost little, but where tables are far wider than sequences are long, pass a number.
        Too few for the tokens is an error.

    Examples
    --------
    >>> blocks = np.zeros((8, 1, 1, 128, 1, 24), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.zeros(2, np.uint32), np.arange(8, dtype=np.uint32).reshape(2, 4))
    >>> plan = quire.mla_prefill_plan(np.array([0, 160, 360], np.uint32), cache, 0, buffer_tokens=256)
    >>> plan.buffer_row_offsets.tolist(), plan.buffer_lengths.tolist()
    ([[0, 256, 256], [0, 0, 256]], [256, 256])
    """
    if max_chunks is None:
        max_chunks = _quire.mla_prefill_num_chunks(
            row_offsets=row_offsets, cache=cache, buffer_tokens=buffer_tokens, decode_tokens=decode_tokens
        )
    shape = (whole_number("mla_prefill_plan", "max_chunks", max_chunks, 0), size(row_offsets, 0))
    unsigned = "i32" if dtype_name(row_offsets) == "i32" else "u32"
    plan = MlaPrefillPlan(
        buffer_row_offsets=empty(row_offsets, shape, unsigned),
        cache_offsets=empty(row_offsets, shape, unsigned),
        buffer_lengths=empty(row_offsets, shape[:1], "i32"),
        buffer_tokens=buffer_tokens,
        decode_tokens=decode_tokens,
    )
    run("mla_prefill_plan", row_offsets, row_offsets=row_offsets, cache=cache, layer=layer, chunks=plan)
    return plan


def mla_prefill(
    q: Array,
    row_offsets: Array,
    cache: PagedKVCache,
    layer: int,
    *,
    freqs_cis: Array | None = None,
    kv_norm_gamma: Array | None = None,
    kv_b_proj: Array,
    kv_b_proj_scale: Array | None = None,
    scale: float,
    epsilon: float = 1e-6,
    plan: MlaPrefillPlan | None = None,
    kv: Array | None = None,
    mask: Mask | str = "causal",
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    sinks: Array | None = None,
    return_lse: bool = False,
    allow_fp8_products: bool = False,
    batch_invariant: bool = False,
    out: Array | None = None,
) -> Array | tuple[Array, Array]:
    """Latent attention over many new tokens: rope, RMSNorm, gather, up-projection and attention, fused.

    **The rope columns of `q` are rotated in place, and the new tokens' cache rows are normalised and rotated in
    place.** This must happen exactly once per token and layer: calling twice gives other results.

    Parameters
    ----------
    q : array [tokens, heads, nope + rope]
        float32, float16 or bfloat16. Changed, unless freqs_cis is absent.
    row_offsets : uint32 array [batch + 1]
    cache, layer : PagedKVCache, int
        An MLA cache whose rows are latent + rope columns.
    freqs_cis : array [max_pos, rope], optional
        cos and sin interleaved. Absent together with kv_norm_gamma: q and the rows are finished already.
    kv_norm_gamma : array [latent], optional
    kv_b_proj : array [heads * (nope + value), latent]
        Per head the K rows, then the V rows; float32, float16, bfloat16 or fp8.
    kv_b_proj_scale : float32 array [ceil(rows / 128), ceil(latent / 128)], optional
        For fp8.
    scale : float
        Of the scores; usually (nope + rope) ** -0.5.
    epsilon : float
        Of the RMSNorm.
    plan : MlaPrefillPlan, optional
        From `mla_prefill_plan`; made here if absent (pass it to share it between layers). Its `decode_tokens` says
        which sequences take the absorbed form of `mla_decode`: then no softcap, ALiBi, trees or key intervals,
        and fp8 weights need nope and value of a multiple of 128.
    kv : array [tokens, latent + rope], optional
        Raw rows of the new tokens; absent: they are in the cache already.
    mask, softcap, alibi_slopes, sinks, return_lse
        As in `flash_attention`.
    allow_fp8_products : bool
        Lets a kernel round queries, keys, values and weights to e4m3 and multiply on fp8 tensor cores.
    batch_invariant : bool
        A sequence's result is the same bits in any batch whose keys fit into one chunk of the plan.
    out : array [tokens, heads, value], optional

    Returns
    -------
    out, or (out, lse)
        A query that sees no key gives 0 and, without a sink, LSE -inf. Nothing but keys of its own sequence reaches a
        query; a NaN or infinity in the latents of those that the mask hides may make its out NaN.

    Examples
    --------
    >>> blocks = np.zeros((2, 1, 1, 16, 1, 24), np.float32)  # latent 16, rope 8
    >>> cache = quire.PagedKVCache(blocks, np.zeros(1, np.uint32), np.array([[1]], np.uint32))
    >>> quire.mla_prefill(
    ...     np.ones((3, 2, 12), np.float32), np.array([0, 3], np.uint32), cache, 0,  # nope 4, rope 8
    ...     freqs_cis=np.ones((32, 8), np.float32), kv_norm_gamma=np.ones(16, np.float32),
    ...     kv=np.ones((3, 24), np.float32), kv_b_proj=np.ones((2 * (4 + 4), 16), np.float32),
    ...     scale=12**-0.5,
    ... ).shape
    (3, 2, 4)
    """
    if plan is None:
        plan = _own_plan(row_offsets, cache, layer)
    tokens, heads = size(q, 0), size(q, 1)
    if out is None and is_cache(cache):
        nope = size(q, 2) - (cache.head_dim - size(kv_b_proj, 1))
        value = size(kv_b_proj, 0) // max(heads, 1) - nope
        out = empty(q, (tokens, heads, value), activation_dtype(q))
    lse = empty(q, (tokens, heads), "f32") if flag("mla_prefill", "return_lse", return_lse) else None
    run(
        "mla_prefill",
        q,
        q=q,
        row_offsets=row_offsets,
        cache=cache,
        layer=layer,
        freqs_cis=freqs_cis,
        kv_norm_gamma=kv_norm_gamma,
        kv=kv,
        kv_b_proj=kv_b_proj,
        kv_b_proj_scale=kv_b_proj_scale,
        scale=scale,
        epsilon=epsilon,
        plan=plan,
        mask=mask,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        sinks=sinks,
        allow_fp8_products=allow_fp8_products,
        batch_invariant=batch_invariant,
        out=out,
        lse=lse,
    )
    return (out, lse) if return_lse else out


def _own_plan(row_offsets: Array, cache: PagedKVCache, layer: int) -> MlaPrefillPlan:
    """The plan of a call that was given none. Its errors are those of the call."""
    try:
        with running():
            return mla_prefill_plan(row_offsets, cache, layer)
    except (TypeError, ValueError) as error:
        if not hasattr(error, "op"):
            raise
        refuse = refuse_type if isinstance(error, TypeError) else refuse_value
        refuse("mla_prefill", error.argument, error.expected, error.actual)
