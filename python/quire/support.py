# SPDX-License-Identifier: Apache-2.0
"""Questions about the library: which kernel serves a call, and what this build and machine offer."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any, NamedTuple

from quire import _quire, attention, compress, decode, index_rows, prefill, projection, quant, rows, sparse
from quire._call import PreparedCall, collecting, context, refuse_type, refuse_value
from quire._tensor import Array

_OPS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        projection.fused_qkv_matmul,
        projection.linear,
        attention.flash_attention,
        attention.merge_states,
        prefill.mla_prefill_plan,
        prefill.mla_prefill,
        decode.mla_decode,
        compress.compress_keys,
        index_rows.store_index_keys,
        index_rows.quantize_index_queries,
        sparse.mla_indexer,
        sparse.select_blocks,
        sparse.sparse_mla,
        sparse.remap_sparse_indices,
        rows.rope,
        rows.rms_norm_key,
        rows.rms_norm_value,
        rows.store,
        rows.store_scales,
        rows.copy_pages,
        rows.row_offsets,
        quant.quantize_fp8,
    )
}


def supports(op: str, *args: Any, **kwargs: Any) -> _quire.Plan:
    """Which kernel would serve a call, or every reason why none does. Nothing is computed.

    Parameters
    ----------
    op : str
        The name of an op; the other arguments are exactly those of ``quire.<op>``.

    Returns
    -------
    Plan
        True if a kernel takes the call. `kernel`, `refusals` (of the better kernels, with reasons), `choices`,
        `workspace_bytes` and, without a kernel, `nearest`: the nearest problem that one would take.

    Raises
    ------
    ValueError, TypeError
        The same as the op itself would for invalid arguments.

    Examples
    --------
    >>> states, lses = np.zeros((2, 3, 4, 8), np.float32), np.zeros((2, 3, 4), np.float32)
    >>> bool(quire.supports("merge_states", states, lses))
    True
    """
    plans: list[_quire.Plan] = []

    def collect(name: str, like: Array, arguments: dict[str, Any]) -> None:
        plans.append(getattr(_quire, "plan_" + name)(context(like), arguments))

    with collecting(collect):
        _op_named(op, "supports")(*args, **kwargs)
    return plans[0]


def plan(op: str, *args: Any, **kwargs: Any) -> PreparedCall:
    """Choose the kernel of a call once, to run it many times: for decoding steps, whose sizes stay the same.

    Arrays that are given here stay those of the call, and their memory is not looked up again: a call names only the
    ones that changed. Results that the op would allocate are allocated here, once. So is the scratch of a GPU op,
    which one stream at a time may use; CUDA graphs can capture a call as it is.

    Parameters
    ----------
    op : str
        The name of an op; the other arguments are exactly those of ``quire.<op>``.

    Returns
    -------
    PreparedCall
        ``call(**changed)`` runs the op, with other arrays or numbers for the arguments that it names, and returns
        what the op returns. Sizes, dtypes and options must be those of the plan; lengths may be shorter. `call.plan`
        says which kernel runs.

    Raises
    ------
    ValueError, TypeError
        The same as the op itself would for invalid arguments, and where no kernel takes them.

    Examples
    --------
    >>> blocks = np.zeros((4, 2, 1, 16, 2, 8), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([5], np.uint32), np.array([[2]], np.uint32))
    >>> offsets, q = np.array([0, 1], np.uint32), np.ones((1, 4, 8), np.float32)
    >>> step = quire.plan("flash_attention", q, offsets, cache, 0)
    >>> step().shape, step(q=2 * q).shape
    ((1, 4, 8), (1, 4, 8))
    """
    calls: list[PreparedCall] = []

    def collect(name: str, like: Array, arguments: dict[str, Any]) -> None:
        calls.append(PreparedCall(name, like, arguments))

    with collecting(collect):
        result = _op_named(op, "plan")(*args, **kwargs)
    calls[0].returns(result)
    return calls[0]


def _op_named(op: str, asked_by: str) -> Callable[..., Any]:
    if not isinstance(op, str):
        refuse_type(asked_by, "op", "a str", type(op).__name__)
    if op not in _OPS:
        refuse_value(asked_by, "op", f"one of {', '.join(_OPS)}", repr(op[:80]))
    return _OPS[op]


class CpuCeiling(NamedTuple):
    """What a processor reached with nothing else to do."""

    target: str  # whose instructions were measured: "amx", "neon_bf16"
    num_threads: int
    read_gbs: float  # reading memory that no cache holds
    f32_gflops: float  # the target's product instruction alone, on registers
    bf16_gflops: float
    int8_gops: float


def measure_cpu_ceiling(*, num_threads: int = 0, target: str = "") -> CpuCeiling:
    """Measure what this machine's processor can do at best, for shares of it. Takes some tenths of a second.

    Parameters
    ----------
    num_threads : int
        That work at once, at most 1024; 0 means all cores.
    target : str
        Such as "amx" or "portable"; by default the best one that runs here.

    Examples
    --------
    >>> quire.measure_cpu_ceiling(num_threads=1, target="portable").target
    'portable'
    """
    return CpuCeiling(*_quire.measure_cpu_ceiling(num_threads=num_threads, target=target))


def info() -> dict[str, Any]:
    """What this build is and runs on: version, backends ("cuda" only where it was built in), machine, cores, ops.

    The cores are those that CPU ops use by default: the process's affinity and the CPU quotas of its control groups
    (those of a container, say) are counted in.

    Examples
    --------
    >>> quire.info()["version"] == quire.__version__
    True
    >>> quire.info()["backends"][:2]
    ['reference', 'cpu']
    """
    return {
        "version": _quire.__version__,
        "backends": _quire.backends.split(),
        "machine": platform.machine(),
        "cores": _quire.num_cores(),
        "ops": list(_OPS),
    }
