# SPDX-License-Identifier: Apache-2.0
"""Products with a weight: the projection that feeds the cache, and those without one."""

from __future__ import annotations

from quire._call import run
from quire._quire import PackedWeight
from quire._tensor import Array, activation_dtype, empty, size
from quire.cache import PagedKVCache, is_cache
from quire.quant import Quant


def fused_qkv_matmul(
    x: Array,
    row_offsets: Array,
    weight: Array | PackedWeight,
    cache: PagedKVCache,
    layer: int,
    *,
    bias: Array | None = None,
    weight_scale: Array | None = None,
    input_scale: Array | None = None,
    quant: Quant | None = None,
    activations: str = "exact",
    allow_fast_accum: bool = False,
    allow_tf32: bool = False,
    batch_invariant: bool = False,
    out: Array | None = None,
) -> Array:
    """x · weightᵀ (+ bias): Q is returned, K and V go straight into the pages of `layer`.

    Parameters
    ----------
    x : array [tokens, hidden]
        float32, float16, bfloat16, or fp8 with `input_scale`.
    row_offsets : uint32 array [batch + 1]
        Sequence b owns the rows [row_offsets[b], row_offsets[b + 1]) of x; its token i is stored at cache_length + i.
    weight : array [q_dim + 2 * kv_dim, hidden]
        Rows of Wq, then Wk, then Wv; for an MLA cache Wq, then the rows of the latent and rope columns. float32,
        float16, bfloat16, fp8 with `weight_scale`, or as `quant` says. Or what `pack_weight` made of it: faster, and on
        the CPU the same bits.
    cache, layer : PagedKVCache, int
        Written at the new tokens' rows. A quantized cache gets scale = amax / max of each granule, or has static
        scales.
    bias : array [q_dim + 2 * kv_dim], optional
        float32 or the dtype of out.
    weight_scale : array, optional
        fp8: float32 [1, 1], [N, 1] or [ceil(N / 128), ceil(hidden / 128)]; int4 formats: see `Quant`.
    input_scale : float32 array, optional
        fp8 x: [1, 1], [tokens, 1] or [tokens, ceil(hidden / 128)].
    quant : Quant, optional
        The format of a quantized weight.
    activations : str
        "exact", or "int8": x is rounded to 8-bit integers per token and group of the weight (scale = amax / 127), and
        the product is one of integers. For int4, gptq, gptq_v2 and awq weights and GGUF's blocks of 32 columns (all but
        the K-quants); the CPU's fast kernels want them packed by `pack_weight`.
    allow_fast_accum : bool
        fp8 with scales per tensor, token or channel: the tensor cores may add up all of K by themselves, with 13 bits
        (`use_fast_accum` of `torch._scaled_mm`). Faster with many tokens; sums of one sign come out percents too small.
    allow_tf32 : bool
        Where x and weight are float32, let a kernel round both to tf32 (a significand of 11 bits) and multiply on
        tensor cores.
    batch_invariant : bool
        A token's result is the same bits whatever the number of tokens; `allow_fast_accum` is then ignored.
    out : array [tokens, q_dim], optional
        Where Q goes. One made here has the dtype of x, bfloat16 for fp8. A weight of 2 * kv_dim rows has K and V alone:
        Q is empty.

    Examples
    --------
    >>> blocks = np.zeros((4, 2, 1, 16, 1, 8), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([0], np.uint32), np.array([[2]], np.uint32))
    >>> x, weight = np.ones((3, 8), np.float32), np.eye(32, 8, dtype=np.float32)  # 16 rows Q, 8 K, 8 V
    >>> quire.fused_qkv_matmul(x, np.array([0, 3], np.uint32), weight, cache, 0).shape
    (3, 16)
    """
    if out is None and is_cache(cache) and (quant is None or isinstance(quant, Quant)):
        num_rows = size(weight, 0) if quant is None else quant.num_rows(weight)
        row = cache.num_kv_heads * cache.head_dim
        q_dim = num_rows - (row if cache.is_mla else 2 * row)
        out = empty(x, (size(x, 0), q_dim), activation_dtype(x))
    run(
        "fused_qkv_matmul",
        x,
        x=x,
        row_offsets=row_offsets,
        weight=weight,
        weight_scale=weight_scale,
        quant=quant,
        cache=cache,
        layer=layer,
        bias=bias,
        input_scale=input_scale,
        activations=activations,
        allow_fast_accum=allow_fast_accum,
        allow_tf32=allow_tf32,
        batch_invariant=batch_invariant,
        out=out,
    )
    return out


def linear(
    x: Array,
    weight: Array | PackedWeight,
    bias: Array | None = None,
    *,
    weight_scale: Array | None = None,
    input_scale: Array | None = None,
    quant: Quant | None = None,
    activations: str = "exact",
    allow_fast_accum: bool = False,
    allow_tf32: bool = False,
    batch_invariant: bool = False,
    out: Array | None = None,
) -> Array:
    """x · weightᵀ (+ bias), with the weights and the kernels of `fused_qkv_matmul` and without a cache.

    For the output projection, gate, up, down and the head of a model.

    Parameters
    ----------
    x : array [tokens, hidden]
        float32, float16, bfloat16, or fp8 with `input_scale`.
    weight : array [N, hidden]
        float32, float16, bfloat16, fp8 with `weight_scale`, or as `quant` says. Or what `pack_weight` made of it: faster,
        and on the CPU the same bits.
    bias : array [N], optional
        float32 or the dtype of out.
    weight_scale, input_scale, quant : optional
        As for `fused_qkv_matmul`.
    activations : str
        "exact", or "int8": x is rounded to 8-bit integers per token and group of the weight. As for `fused_qkv_matmul`.
    allow_fast_accum, allow_tf32, batch_invariant : bool
        As for `fused_qkv_matmul`.
    out : array [tokens, N], optional
        float32, float16 or bfloat16. One made here has the dtype of x, bfloat16 for fp8.

    Examples
    --------
    >>> x, weight = np.array([[1.0, 2.0]], np.float32), np.array([[1.0, 0.0], [0.5, 0.5], [0.0, -1.0]], np.float32)
    >>> quire.linear(x, weight, np.array([0.0, 0.0, 1.0], np.float32)).tolist()
    [[1.0, 1.5, -1.0]]
    """
    if out is None and (quant is None or isinstance(quant, Quant)):
        num_rows = size(weight, 0) if quant is None else quant.num_rows(weight)
        out = empty(x, (size(x, 0), num_rows), activation_dtype(x))
    run(
        "linear",
        x,
        x=x,
        weight=weight,
        weight_scale=weight_scale,
        quant=quant,
        bias=bias,
        input_scale=input_scale,
        activations=activations,
        allow_fast_accum=allow_fast_accum,
        allow_tf32=allow_tf32,
        batch_invariant=batch_invariant,
        out=out,
    )
    return out
