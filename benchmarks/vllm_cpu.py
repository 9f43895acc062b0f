# SPDX-License-Identifier: Apache-2.0
"""vllm-cpu as a peer of benchmarks/cpu.py: its paged attention and its products, in a process and an environment of its own.

    python -m benchmarks.cpu --vllm build/vllm/venv/bin/python

plugins/vllm/environment.sh makes that environment. Nothing but torch and the kernels of vLLM's wheel is loaded, without
vLLM's Python: so a machine that has the right torch needs only `vllm/_C*.abi3.so`, the wheel's METADATA and libiomp5.so
of intel-openmp in a folder on PYTHONPATH. What vLLM's Python decides, which kernel and which order of the weight, is
decided here the same way; where it has two kernels for a product both are contenders.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import forced_target
from benchmarks.peer_process import Makers, PeerProcess, serve

BLOCK = 128  # tokens of a page, vLLM's default on CPUs
NIBBLES = 8  # of an int32
# Where AWQ puts each of eight neighbouring columns in an int32.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
PRIMITIVES = 32  # of oneDNN that vLLM keeps for a weight


def start(python: str) -> PeerProcess:
    return PeerProcess("vllm-cpu", python, "benchmarks.vllm_cpu")


# The other side from here on; torch is that of the other environment.


def has_amx() -> bool:
    import torch

    return not forced_target.target() and torch.cpu._is_amx_tile_supported()


def library() -> str:
    """The build of vLLM's kernels that vLLM would load on this processor."""
    import torch

    if platform.machine() != "x86_64" or forced_target.target() == "avx512":
        return "_C"
    if forced_target.target() == "avx2" or not torch.cpu._is_avx512_supported():
        return "_C_AVX2"
    has_bf16 = forced_target.target() != "avx512_vnni" and torch.cpu._is_avx512_bf16_supported()
    return "_C" if has_bf16 else "_C_AVX512"


def named(op: str, **arguments: Any) -> Callable[[], Any]:
    """A call of vLLM's op with those of the arguments that this version of it has."""
    import torch

    found = getattr(torch.ops._C, op).default
    return partial(found, *[arguments[argument.name] for argument in found._schema.arguments])


class PagedAttention:
    """Several layers of K and V in vLLM's cache, in an order of pages that is not that of the tokens.

    q [batch, new, heads, dim]; k, v [sequences, keys, kv_heads, dim], of which the last `new` keys are q's own. Sequence
    b of the batch holds what sequence b % sequences holds, in pages of its own.
    """

    def __init__(self, q: Any, k: Any, v: Any, *, layers: int, cache: str) -> None:
        """`cache`: vLLM's name for the cache's dtype; `auto` is q's."""
        import torch

        self.cache_dtype = cache
        batch, new, self.heads, self.dim = q.shape
        keys, self.kv_heads = k.shape[1:3]
        self.q = q.reshape(-1, self.heads, self.dim)
        self.out = torch.empty_like(self.q)
        self.isa = self._isa()
        columns = -(-keys // BLOCK)
        self.table = torch.randperm(batch * columns).to(torch.int32).reshape(batch, columns)
        position = torch.arange(keys)
        slots = self.table.long()[:, position // BLOCK] * BLOCK + position % BLOCK
        self.caches = [self._cache(batch * columns, k, v, slots) for _ in range(layers)]
        self.lengths = torch.full((batch,), keys, dtype=torch.int32)
        self.starts = torch.arange(0, (batch + 1) * new, new, dtype=torch.int32)

    def _isa(self) -> str:
        import torch

        if platform.machine() == "aarch64":
            return "neon"
        return "amx" if has_amx() and self.q.dtype == torch.bfloat16 else "vec"

    def _cache(self, pages: int, k: Any, v: Any, slots: Any) -> tuple[Any, Any]:
        import torch

        dtype = k.dtype if self.cache_dtype == "auto" else torch.uint8
        made = torch.zeros(pages, self.kv_heads, 2 * BLOCK, self.dim, dtype=dtype)
        key, value = made.chunk(2, dim=2)
        rows = [x.reshape(-1, self.kv_heads, self.dim) for x in (k, v)]
        for first in range(0, len(slots), len(k)):
            named(
                "cpu_attn_reshape_and_cache",
                key=rows[0],
                value=rows[1],
                key_cache=key,
                value_cache=value,
                slot_mapping=slots[first : first + len(k)].flatten(),
                isa=self.isa,
                k_scale=1.0,
                v_scale=1.0,
                kv_cache_dtype=self.cache_dtype,
            )()
        return key, value

    def use_threads(self, threads: int) -> Sequence[Callable[[], Any]]:
        """How a batch is dealt to threads is planned once a step, not for each layer."""
        import torch

        torch.set_num_threads(threads)
        plan = named(
            "get_scheduler_metadata",
            num_req=len(self.lengths),
            num_heads_q=self.heads,
            num_heads_kv=self.kv_heads,
            head_dim=self.dim,
            seq_lens=self.lengths,
            dtype=self.q.dtype,
            query_start_loc=self.starts,
            casual=True,
            window_size=-1,
            isa_hint=self.isa,
            enable_kv_split=True,
            dynamic_causal=None,
            kv_cache_dtype=self.cache_dtype,
        )()
        self.calls = [self._call(key, value, plan) for key, value in self.caches]
        return self.calls

    def _call(self, key: Any, value: Any, plan: Any) -> Callable[[], Any]:
        return named(
            "cpu_attention_with_kv_cache",
            query=self.q,
            key_cache=key,
            value_cache=value,
            output=self.out,
            query_start_loc=self.starts,
            seq_lens=self.lengths,
            scale=self.dim**-0.5,
            causal=True,
            alibi_slopes=None,
            sliding_window_size=-1,
            block_table=self.table,
            softcap=0.0,
            scheduler_metadata=plan,
            s_aux=None,
            dynamic_causal=None,
            k_scale=1.0,
            v_scale=1.0,
            kv_cache_dtype=self.cache_dtype,
        )

    def result(self) -> np.ndarray:
        self.calls[0]()
        return self.out.float().numpy()


def attention(arrays: dict[str, np.ndarray], *, layers: int, dtype: str, cache: str) -> Makers:
    """`dtype`: of the activations, and of a cache that is `auto`."""
    import torch

    tensors = {name: torch.from_numpy(array).to(getattr(torch, dtype)) for name, array in arrays.items()}
    return {"attention": lambda: PagedAttention(**tensors, layers=layers, cache=cache)}


class Products:
    """x · weightᵀ on several layers: `call()` makes a call over memory of its own, which gives its result or fills `out`."""

    def __init__(self, call: Callable[[], Callable[[], Any]], layers: int, out: Any) -> None:
        self.calls = [call() for _ in range(layers)]
        self.out = out

    def use_threads(self, threads: int) -> Sequence[Callable[[], Any]]:
        import torch

        torch.set_num_threads(threads)
        return self.calls

    def result(self) -> np.ndarray:
        made = self.calls[0]()
        return (self.out if made is None else made).float().numpy()


def onednn_handler(create: str, *arguments: Any) -> Any:
    """The address of a weight in oneDNN's order, which goes with this tensor."""
    import torch

    address = getattr(torch.ops._C, create)(*arguments)
    handler = torch.tensor(address)
    weakref.finalize(handler, torch.ops._C.release_dnnl_matmul_handler, address).atexit = False
    return handler


def dense(arrays: dict[str, np.ndarray], *, layers: int, dtype: str) -> Makers:
    """x [tokens, K], weight [N, K]. vLLM takes `packed` for small weights alone, and oneDNN for the others."""
    import torch

    x, weight = (torch.from_numpy(arrays[name]).to(getattr(torch, dtype)) for name in ("x", "weight"))
    out = torch.empty(len(x), len(weight), dtype=x.dtype)

    def packed() -> Callable[[], Any]:
        order = torch.ops._C.convert_weight_packed(weight)
        return named("weight_packed_linear", out=out, mat1=x, mat2=order, bias=None, is_vnni=True)

    def onednn() -> Callable[[], Any]:
        handler = onednn_handler("create_onednn_mm_handler", weight.t(), PRIMITIVES)
        return named("onednn_mm", c=out, a=x, bias=None, handler_tensor=handler)

    makers = {f"oneDNN {dtype_name(dtype)}": onednn}
    if has_amx() and dtype == "bfloat16":
        makers["packed bf16"] = packed
    return {name: partial(Products, call, layers, out) for name, call in makers.items()}


def dtype_name(dtype: str) -> str:
    return {"bfloat16": "bf16", "float32": "f32"}[dtype]


def pack_nibbles(codes: Any, order: Sequence[int]) -> Any:
    """Codes [K, N] as int32 [K, N / 8]; nibble i holds column order[i] of eight."""
    import torch

    eights = codes.reshape(len(codes), -1, NIBBLES)[..., list(order)].to(torch.int64)
    packed = (eights << (4 * torch.arange(NIBBLES))).sum(-1)
    return torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32)


def int4(arrays: dict[str, np.ndarray], *, layers: int) -> Makers:
    """x [tokens, K]; codes 0..15 [N, K] with a zero point of 8; scale [N, K / group]. `w4a8` rounds x to 8 bits."""
    import torch

    x = torch.from_numpy(arrays["x"]).bfloat16()
    codes = torch.from_numpy(arrays["codes"]).t()
    scale = torch.from_numpy(arrays["scale"]).bfloat16().t().contiguous()
    columns, rows = codes.shape
    out = torch.empty(len(x), rows, dtype=x.dtype)

    def w4a8() -> Callable[[], Any]:
        zeros = pack_nibbles(torch.full(scale.shape, 8), AWQ_ORDER)
        weight, zeros, scales = torch.ops._C.convert_weight_packed_scale_zp(pack_nibbles(codes, AWQ_ORDER), zeros, scale, 0)
        return named("int4_scaled_mm_cpu", x=x, w=weight, w_zeros=zeros, w_scales=scales, bias=None)

    def w4a16() -> Callable[[], Any]:
        packed = pack_nibbles(codes, range(NIBBLES))
        blocks = packed.reshape(columns, -1, 16 // NIBBLES).transpose(0, 1).reshape(rows // 16, -1).contiguous()
        return named(
            "cpu_gemm_wna16",
            input=x,
            q_weight=blocks,
            output=out,
            scales=scale,
            zeros=None,
            g_idx=None,
            bias=None,
            pack_factor=NIBBLES,
            isa_hint="amx" if has_amx() else "vec",
        )

    makers = {"w4a16": w4a16} | ({"w4a8": w4a8} if has_amx() else {})
    return {name: partial(Products, call, layers, out) for name, call in makers.items()}


def int8(arrays: dict[str, np.ndarray], *, layers: int) -> Makers:
    """x [tokens, K]; codes int8 [N, K]; scale [N]. Both round x to 8 bits per token."""
    import torch

    x = torch.from_numpy(arrays["x"]).bfloat16()
    codes, scale = torch.from_numpy(arrays["codes"]), torch.from_numpy(arrays["scale"])
    out = torch.empty(len(x), len(codes), dtype=x.dtype)

    def packed() -> Callable[[], Any]:
        order = torch.ops._C.convert_weight_packed(codes)
        options = {"bias": None, "out_dtype": x.dtype, "is_vnni": True}
        return named("int8_scaled_mm_with_quant", mat1=x, mat2=order, scales2=scale, **options)

    def onednn() -> Callable[[], Any]:
        made = onednn_handler("create_onednn_scaled_mm_handler", codes.t(), scale, x.dtype, True, False, PRIMITIVES)
        rounded, step = torch.empty_like(x, dtype=torch.int8), torch.empty(len(x), 1)
        quantize = named("dynamic_scaled_int8_quant", out=rounded, input=x, scale=step, azp=None)
        arguments = {"c": out, "a": rounded, "a_scales": step, "azp": None, "azp_adj": None, "bias": None}
        multiply = named("onednn_scaled_mm", **arguments, handler_tensor=made)
        return lambda: (quantize(), multiply())[1]

    makers = {"oneDNN w8a8": onednn} | ({"packed w8a8": packed} if has_amx() else {})
    return {name: partial(Products, call, layers, out) for name, call in makers.items()}


# vLLM's kernels and torch's then use one OpenMP library, whose threads sleep soon after a burst.
OPENMP = "libiomp5.so"
OPENMP_SETTINGS = {"KMP_BLOCKTIME": "1", "KMP_TPAUSE": "0"}


def preload() -> None:
    """Replace this process by one with Intel's OpenMP library, which vLLM advises, where the environment has it."""
    if OPENMP in os.environ.get("LD_PRELOAD", ""):
        return
    folders = [Path(sys.prefix) / "lib", *map(Path, sys.path)]
    for file in filter(Path.exists, (folder / OPENMP for folder in folders)):
        preloaded = os.pathsep.join(filter(None, [str(file), os.environ.get("LD_PRELOAD")]))
        environment = os.environ | OPENMP_SETTINGS | {"LD_PRELOAD": preloaded}
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.vllm_cpu"], environment)


def load() -> tuple[str, dict[str, Callable[..., Makers]]]:
    import torch

    found = importlib.util.find_spec("vllm")
    if found is None:
        raise ModuleNotFoundError("no vllm in this environment")
    if has_amx():
        torch.cpu._init_amx()
    files = [Path(folder) / f"{library()}.abi3.so" for folder in found.submodule_search_locations]
    present = [file for file in files if file.exists()]
    if not present:
        raise FileNotFoundError(f"no {files[0].name} in this environment's vllm")
    torch.ops.load_library(str(present[0]))
    kinds = {"attention": attention, "dense": dense, "int4": int4, "int8": int8}
    return importlib.metadata.version("vllm-cpu"), kinds


if __name__ == "__main__":
    preload()
    serve(load)
