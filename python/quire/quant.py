# SPDX-License-Identifier: Apache-2.0
"""Quantized weights, and dynamic fp8 quantization of activations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral

from quire import _quire
from quire._call import context, refuse_type, refuse_value, run
from quire._quire import PackedWeight
from quire._tensor import Array, dtype_name, empty, framework, size


@dataclass(frozen=True, eq=False)
class Quant:
    """How the bytes of a quantized weight [N, K] are read. Scales are the op's `weight_scale`.

    Parameters
    ----------
    format : str
        "int4": uint8 [N, K/2], the even column in the low nibble; scale [N, K/g], zeros uint8 [N, K/g] or none (= 8).
        "gptq", "gptq_v2": int32 [K/8, N]; scale [K/g, N], zeros int32 [K/g, N/8], stored minus one by "gptq".
        "awq": int32 [K, N/8], nibbles in AWQ's order; scale [K/g, N], zeros int32 [K/g, N/8].
        "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4", "q4_k", "q5_k", "q6_k": GGUF blocks, uint8
        [N, bytes of a row]; no weight_scale.
        "fp8" and "dense" are found by dtype and need no Quant.
    group_size : int
        Columns that share a scale: 32, 64 or 128; 0 for the formats that fix it themselves.
    zeros : array, optional
        Zero points.
    perm : int32 array [K], optional
        Act-order: column k of the stored weight multiplies x[:, perm[k]].

    Examples
    --------
    >>> quire.Quant("int4", group_size=32).format
    'int4'
    """

    format: str
    group_size: int = 0
    zeros: Array | None = None
    perm: Array | None = None

    def num_rows(self, weight: Array) -> int:
        """N of a weight in this format."""
        if not isinstance(self.format, str):
            return 0  # the op says so
        if self.format == "awq":
            return size(weight, 1) * 8
        return size(weight, 1 if self.format in ("gptq", "gptq_v2") else 0)


def pack_int4(codes: Array) -> Array:
    """Pack codes 0..15 of shape [N, K] two per byte into uint8 [N, K/2], as `Quant("int4")` reads them.

    Parameters
    ----------
    codes : uint8 array [N, K]
        From numpy, ml_dtypes (uint4), torch or CuPy; K is even. Codes above 15 are refused.

    Examples
    --------
    >>> quire.pack_int4(np.array([[1, 15, 0, 7]], np.uint8))
    array([[241, 112]], dtype=uint8)
    """
    dtype = dtype_name(codes)
    if framework(codes) not in ("numpy", "torch", "cupy", "jax", "jaxlib") or dtype not in ("u8", "uint4"):
        refuse_type("pack_int4", "codes", "uint8 or uint4", dtype or type(codes).__name__)
    if len(codes.shape) != 2 or size(codes, 1) % 2 != 0:
        refuse_value("pack_int4", "codes", "[N, an even K]", str(list(codes.shape)))
    if dtype == "uint4":
        codes = codes.astype("uint8")
    elif math.prod(codes.shape) > 0 and int(codes.max()) > 15:
        refuse_value("pack_int4", "codes", "from 0 to 15", str(int(codes.max())))
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def pack_weight(weight: Array, *, weight_scale: Array | None = None, quant: Quant | None = None) -> PackedWeight:
    """Put a projection weight into the order in which the kernels of its device read it.

    Every `fused_qkv_matmul` and `linear` with it is faster. On the CPU it gives the same bits as the plain weight; on a GPU
    int4, GPTQ and AWQ weights are packed, for kernels that add in another order. The result holds a copy: the arrays given
    may go.

    Parameters
    ----------
    weight, weight_scale, quant
        As for `fused_qkv_matmul`.

    Returns
    -------
    PackedWeight
        Passed as `weight`, without `weight_scale` and `quant`. Has `shape` (N, K), `format`, `packing` (the name of the
        order) and `nbytes`. A kernel that cannot read its order refuses it. It pickles; what was pickled by another
        version, or on a machine whose kernels read another order, is refused when it is loaded.

    Examples
    --------
    >>> packed = quire.pack_weight(np.eye(32, 8, dtype=np.float32))
    >>> packed.shape, packed.format
    ((32, 8), 'dense')
    """
    arguments = {"weight": weight, "weight_scale": weight_scale, "quant": quant}
    here = context(weight)
    on_gpu = framework(weight) == "cupy" or getattr(getattr(weight, "device", None), "type", "cpu") == "cuda"
    if not on_gpu:
        return _quire.pack_weight(here, **arguments)
    storage = empty(weight, (_quire.packed_bytes(here, **arguments),), "u8")
    return _quire.pack_weight(here, storage=storage, **arguments)


def quantize_fp8(
    x: Array,
    *,
    group_size: int = -1,
    dtype: str = "fp8_e4m3",
    scale_upper_bound: float = math.inf,
    power_of_two_scale: bool = False,
    out: Array | None = None,
    scale: Array | None = None,
) -> tuple[Array, Array]:
    """Quantize rows to fp8 in groups along the last axis: scale = amax / max, q = saturate(x / scale).

    max is the largest finite number of the dtype: 448 (e4m3) or 57344 (e5m2).

    Parameters
    ----------
    x : array [rows, columns]
        float32, float16 or bfloat16.
    group_size : int
        Columns that share a scale; -1 for the whole row.
    dtype : str
        "fp8_e4m3" or "fp8_e5m2", the dtype of an `out` made here.
    scale_upper_bound : float
        amax is clipped to it; larger values saturate.
    power_of_two_scale : bool
        Round scales up to a power of two (e8m0).
    out, scale : array, optional
        fp8 [rows, columns] and float32 [rows, ceil(columns / group_size)]; `scale` may be a transposed view.

    Returns
    -------
    (out, scale)
        An all-zero group has zeros and scale 0, or 2**-33 with power_of_two_scale.

    Examples
    --------
    >>> q, scale = quire.quantize_fp8(np.array([[448.0, -224.0, 0.0, 112.0]], np.float32))
    >>> q.astype(np.float32).tolist(), scale.tolist()
    ([[448.0, -224.0, 0.0, 112.0]], [[1.0]])
    """
    if not isinstance(dtype, str):
        refuse_type("quantize_fp8", "dtype", "fp8_e4m3 or fp8_e5m2", type(dtype).__name__)
    if dtype not in ("fp8_e4m3", "fp8_e5m2"):
        refuse_value("quantize_fp8", "dtype", "fp8_e4m3 or fp8_e5m2", repr(dtype[:80]))
    rows, columns = size(x, 0), size(x, 1)
    in_groups = isinstance(group_size, Integral) and group_size > 0  # the op refuses what is neither this nor -1
    groups = -(-columns // group_size) if in_groups else 1
    out = empty(x, (rows, columns), dtype) if out is None else out
    scale = empty(x, (rows, groups), "f32") if scale is None else scale
    run(
        "quantize_fp8",
        x,
        x=x,
        group_size=group_size,
        scale_upper_bound=scale_upper_bound,
        power_of_two_scale=power_of_two_scale,
        out=out,
        scale=scale,
    )
    return out, scale
