# SPDX-License-Identifier: Apache-2.0
"""Allocation in the caller's framework: numpy in, numpy out; torch in, torch out, on the same device."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

Array = Any  # numpy, torch, CuPy, JAX: whatever has __dlpack__ (or ml_dtypes in a numpy array)

_ARRAY_NAMES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "i8": "int8",
    "u8": "uint8",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "e8m0": "float8_e8m0fnu",
}
_QUIRE_NAMES = {array_name: name for name, array_name in _ARRAY_NAMES.items()}


# What was found out about a few classes and dtypes: both are looked at several times in a call, and never change.
_REMEMBERED = 64
_packages: dict[type, str] = {}
_dtype_names: dict[Any, str] = {}


def framework(array: Array) -> str:
    """Name of the package that an array comes from: "numpy", "torch", "cupy", ..."""
    kind = type(array)
    known = _packages.get(kind)
    if known is None:
        known = _package_of(kind)
        if len(_packages) < _REMEMBERED:
            _packages[kind] = known
    return known


def _package_of(kind: type) -> str:
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if package in ("numpy", "torch", "cupy", "jax", "jaxlib"):
            return package
    return kind.__module__.partition(".")[0]


def dtype_name(array: Array) -> str:
    """Quire's name of an array's dtype ("bf16"), or the framework's own where Quire has none."""
    dtype = getattr(array, "dtype", "")
    try:
        known = _dtype_names.get(dtype)
    except TypeError:  # no hash: no framework's dtype
        return ""
    if known is None:
        name = str(dtype).removeprefix("torch.")
        known = _QUIRE_NAMES.get(name, name)
        if len(_dtype_names) < _REMEMBERED:
            _dtype_names[dtype] = known
    return known


def activation_dtype(array: Array) -> str:
    """The dtype of results computed from `array`: its own, bf16 for fp8."""
    name = dtype_name(array)
    if name.startswith("fp8"):
        return "bf16"
    return name if name in ("f32", "f16", "bf16") else "f32"  # validation refuses the rest


def size(array: Array, axis: int) -> int:
    """A dimension, or 0 where there is none: the op, not the allocation, reports a wrong rank."""
    shape = getattr(array, "shape", ())
    if not isinstance(shape, (tuple, Sequence)):
        return 0
    return _extent(shape[axis]) if -len(shape) <= axis < len(shape) else 0


def _extent(value: Any) -> int:
    """A size that was asked for, or 0 where it is none: the op, not the allocation, reports it."""
    if type(value) is int and 0 < value < 2**62:
        return value
    try:
        size = operator.index(value)
    except TypeError:
        return 0
    return size if 0 < size < 2**62 else 0


def empty(like: Array, shape: Sequence[int], dtype: str) -> Array:
    """Uninitialised memory in the framework and on the device of `like`."""
    dims = [_extent(extent) for extent in shape]
    if math.prod(dims) >= 2**59:  # no address space holds it: the op, not the framework, says so
        dims = [0] * len(dims)
    package = framework(like)
    if package == "torch":
        wanted = _torch_dtype(dtype)
        if like.dtype is wanted and type(like) is _torch_tensor():
            return like.new_empty(*dims)  # a third of torch.empty's time, which parses dtype and device
        return _torch_empty()(dims, dtype=wanted, device=like.device)
    if package == "cupy":
        import cupy

        with like.device:
            return cupy.empty(dims, dtype=_ARRAY_NAMES[dtype])
    # JAX arrays are immutable, so their results come as numpy arrays, which jax.numpy.asarray takes over.
    return np.empty(dims, dtype=numpy_dtype(dtype))


@cache
def _torch_empty() -> Any:
    import torch

    return torch.empty


@cache
def _torch_tensor() -> Any:
    import torch

    return torch.Tensor


@cache
def _torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, _ARRAY_NAMES[name])


def numpy_dtype(name: str) -> np.dtype:
    """numpy's dtype, from ml_dtypes where numpy itself has none."""
    if name in ("bf16", "fp8_e4m3", "fp8_e5m2", "e8m0"):
        try:
            import ml_dtypes
        except ImportError as error:
            raise ImportError(
                f"a numpy result of dtype {name} needs the package ml_dtypes (or pass out=)"
            ) from error
        return np.dtype(getattr(ml_dtypes, _ARRAY_NAMES[name]))
    return np.dtype(_ARRAY_NAMES[name])


def device_of(array: Array) -> str:
    """Where an array's memory is: "cpu", "cuda:0"."""
    package = framework(array)
    if package == "cupy":
        return f"cuda:{array.device.id}"
    return str(array.device) if package == "torch" else "cpu"


def is_dense(array: Array) -> bool:
    """Whether it is an array whose elements fill its memory in order."""
    package = framework(array)
    if package == "torch":
        return bool(array.is_contiguous())
    return package in ("numpy", "cupy") and bool(array.flags.c_contiguous)


def is_writable(array: Array) -> bool:
    """Whether a dense array may be written to: numpy alone has others."""
    return framework(array) != "numpy" or bool(array.flags.writeable)


def is_on_gpu(array: Array) -> bool:
    """Whether an array's memory is a GPU's."""
    package = framework(array)
    return package == "cupy" or (package == "torch" and bool(array.is_cuda))


def gpu_index(array: Array) -> int:
    """The number of the GPU that holds an array; -1: none does."""
    package = framework(array)
    if package == "torch":
        return array.get_device() if array.is_cuda else -1
    return array.device.id if package == "cupy" else -1


def scratch(like: Array, size: int) -> tuple[Array, int]:
    """Bytes for one call on the GPU of `like`, from its framework, which orders memory by stream; and their address."""
    if framework(like) == "torch":
        memory = _torch_empty()(size, dtype=_torch_dtype("u8"), device=like.device)
        return memory, memory.data_ptr()
    memory = empty(like, (size,), "u8")
    return memory, span(memory)[0]


def span(array: Array) -> tuple[int, int]:
    """Address and bytes of a dense numpy, torch or CuPy array."""
    package = framework(array)
    if package == "torch":
        return array.data_ptr(), array.numel() * array.element_size()
    if package == "cupy":
        return array.data.ptr, array.nbytes
    return array.ctypes.data, array.nbytes


def current_stream(like: Array) -> int:
    """The CUDA stream that the caller's framework works on; 0 on the CPU."""
    package = framework(like)
    if package == "torch" and like.is_cuda:
        return _torch_stream()(like.get_device())
    if package == "cupy":
        import cupy

        return cupy.cuda.get_current_stream().ptr
    return 0


@cache
def _torch_stream() -> Callable[[int], int]:
    """torch's current stream of a device. Its raw form makes no Stream object: a tenth of the time."""
    import torch

    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw if raw is not None else lambda device: torch.cuda.current_stream(device).cuda_stream
