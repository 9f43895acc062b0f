# SPDX-License-Identifier: Apache-2.0
"""libquire.so through ctypes. The structs, numbers and functions are those of tests/c/abi.txt, the recorded interface.

`Call` turns the arguments of a Python function of Quire into the structs of the C interface: numpy arrays become
DLTensors, a PagedKVCache becomes a quire_cache, and so on.
"""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import quire

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "tests/c/abi.txt"


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


SCALARS = {
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "double": ctypes.c_double,
    "quire_status": ctypes.c_int32,
    "quire_op": ctypes.c_int32,
    "const char*": ctypes.c_char_p,
    "const DLTensor*": ctypes.POINTER(DLTensor),
    "DLTensor*": ctypes.POINTER(DLTensor),
}
# numpy's name of a dtype → DLPack's code and bits.
CODES = {
    "float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8),
    "int8": (0, 8), "uint8": (1, 8), "int32": (0, 32), "uint32": (1, 32), "int64": (0, 64), "float64": (2, 64),
}  # fmt: skip


@cache
def library_path() -> Path | None:
    """The library beside the module under test, or QUIRE_LIBRARY; None where it was not built."""
    if os.environ.get("QUIRE_LIBRARY"):
        return Path(os.environ["QUIRE_LIBRARY"])
    folders = [*Path(quire._quire.__file__).resolve().parents[:3], ROOT / "build/release"]
    return next((folder / "libquire.so" for folder in folders if (folder / "libquire.so").exists()), None)


class Interface:
    """The recorded interface, as ctypes has it, of one loaded library."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.numbers: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.fields: dict[str, list[tuple[int, str, str]]] = {}  # struct → offset, name, type
        for line in LIST.read_text().splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "enumerator":
                self.numbers[rest.split()[0]] = int(rest.split()[1])
            elif kind == "size":
                self.sizes[rest.split()[0]] = int(rest.split()[1])
            elif kind == "field":
                struct, offset, name, of_type = re.fullmatch(r"(\w+) (\d+) (\w+): (.+)", rest).groups()
                self.fields.setdefault(struct, []).append((int(offset), name, of_type))
        self.structs = {name: type(name, (ctypes.Structure,), {}) for name in self.sizes}
        for name, struct in self.structs.items():
            struct._fields_ = [(field, self.type_of(of_type)) for _, field, of_type in self.fields[name]]
        for result in re.finditer(r"^function (.+?)\s*\b(quire_\w+)\((.*)\)$", LIST.read_text(), re.M):
            self.declare(*result.groups())

    def type_of(self, text: str) -> Any:
        if text in SCALARS:
            return SCALARS[text]
        pointer = re.fullmatch(r"(?:const )?(quire_\w+)\*", text)
        if pointer and pointer[1] in self.structs:
            return ctypes.POINTER(self.structs[pointer[1]])
        if text.endswith("*") or "(*)" in text:
            return ctypes.c_void_p  # handles, callbacks, memory
        raise KeyError(text)

    def declare(self, result: str, name: str, parameters: str) -> None:
        function = getattr(self.library, name)
        function.restype = None if result == "void" else self.type_of(result)
        types = [] if parameters == "void" else [re.sub(r"\s*\w+$", "", part) for part in parameters.split(", ")]
        # What a function fills in is handed over by ctypes.byref, whatever its type.
        function.argtypes = [ctypes.c_void_p if part.endswith("*") and "const" not in part else self.type_of(part)
                             for part in types]  # fmt: skip

    def last_error(self) -> tuple[str, str, str, str]:
        """op, argument, expected, actual."""
        parts = ("OP", "ARGUMENT", "EXPECTED", "ACTUAL")
        part = self.library.quire_last_error_part
        return tuple(part(self.numbers["QUIRE_ERROR_" + name]).decode() for name in parts)


class Call:
    """The struct of an op for the arguments of its Python function; what the struct points to lives as long as this."""

    def __init__(self, interface: Interface, op: str, arguments: dict[str, Any]) -> None:
        self.interface = interface
        self.op = op
        self.kept: list[Any] = []
        self.number = interface.numbers["QUIRE_OP_" + op.upper()]
        self.plan: dict[str, np.ndarray] = {}  # of mla_prefill_plan: what it writes
        name = "rms_norm" if op.startswith("rms_norm") else op
        self.args = self.make(f"quire_{name}_args", self.fields(dict(arguments)))

    def run(self, context: Any = None) -> int:
        return getattr(self.interface.library, "quire_" + self.op)(self.args, context)

    def make(self, struct: str, values: dict[str, Any]) -> Any:
        made = self.interface.structs[struct](struct_size=self.interface.sizes[struct])
        for name, value in values.items():
            setattr(made, name, self.converted(value))
        self.kept.append(made)
        return made

    def pointer(self, struct: str, values: dict[str, Any]) -> Any:
        return ctypes.pointer(self.make(struct, values))

    def converted(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self.tensor(value)
        if isinstance(value, quire.PagedKVCache):
            return self.cache(value)
        if isinstance(value, quire.Mask):
            return self.mask(value)
        return value

    def tensor(self, array: np.ndarray) -> Any:
        sizes = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        strides = (ctypes.c_int64 * max(array.ndim, 1))(*(stride // array.itemsize for stride in array.strides))
        view = DLTensor(array.ctypes.data, DLDevice(1, 0), array.ndim, DLDataType(*CODES[array.dtype.name], 1), sizes, strides)
        self.kept += [array, sizes, strides, view]
        return ctypes.pointer(view)

    def cache(self, of: quire.PagedKVCache) -> Any:
        names = ("blocks", "cache_lengths", "page_table", "scales", "scales_page_table", "value_blocks")
        values = {name: getattr(of, name) for name in names if getattr(of, name) is not None}
        if of.row_format is not None:
            values["row_format"] = self.row_format(of.row_format)
        if of.static_scales is not None:
            values["static_scales"] = self.interface.numbers["QUIRE_SCALES_" + ("STATIC" if of.static_scales else "DYNAMIC")]
        return self.pointer("quire_cache", values)

    def row_format(self, of: quire.RowFormat) -> Any:
        numbers, part_type = self.interface.numbers, self.interface.structs["quire_row_part"]
        parts = (part_type * len(of.parts))()
        for made, part in zip(parts, of.parts):
            made.struct_size = ctypes.sizeof(part_type)
            for name in ("width", "offset_bytes", "granularity", "scale_offset_bytes"):
                setattr(made, name, getattr(part, name))
            made.dtype = numbers["QUIRE_DTYPE_" + part.dtype.upper()]
            made.scale_dtype = numbers["QUIRE_DTYPE_" + part.scale_dtype.upper()]
            made.scale_source = numbers["QUIRE_SCALE_SOURCE_" + part.scale_source.upper()]
        self.kept.append(parts)
        first = ctypes.cast(parts, ctypes.POINTER(part_type))
        return self.pointer("quire_row_format", {"parts": first, "num_parts": len(of.parts), "row_bytes": of.row_bytes})

    def mask(self, of: quire.Mask) -> Any:
        values: dict[str, Any] = {"kind": self.interface.numbers["QUIRE_MASK_" + of.kind.upper()], "size": of.size}
        fields = ("bits", "left", "right", "begin", "end")
        values |= {name: getattr(of, name) for name in fields if getattr(of, name) is not None}
        return self.pointer("quire_mask", values)

    def weight(self, data: np.ndarray, scale: np.ndarray | None, quant: quire.Quant | None) -> Any:
        values: dict[str, Any] = {"data": data}
        if scale is not None:
            values["scale"] = scale
        if quant is not None:
            values["format"] = self.interface.numbers["QUIRE_WEIGHT_" + quant.format.upper()]
            values["group_size"] = quant.group_size
            values |= {name: getattr(quant, name) for name in ("zeros", "perm") if getattr(quant, name) is not None}
        return self.pointer("quire_weight", values)

    def chunks(self, given: dict[str, Any], buffer_tokens: int) -> Any:
        """Room for the plan of a prefill, as many chunks as it needs."""
        count = ctypes.c_int64()
        status = self.interface.library.quire_mla_prefill_num_chunks(
            self.tensor(given["row_offsets"]), self.cache(given["cache"]), buffer_tokens, 0, ctypes.byref(count)
        )
        assert status == 0, self.interface.last_error()
        shape = (count.value, len(given["row_offsets"]))
        self.plan = {
            "buffer_row_offsets": np.zeros(shape, np.uint32),
            "cache_offsets": np.zeros(shape, np.uint32),
            "buffer_lengths": np.zeros(shape[0], np.int32),
        }
        return self.pointer("quire_mla_prefill_chunks", {**self.plan, "buffer_tokens": buffer_tokens})

    def fields(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments by the names of the C interface, those that it wraps into structs wrapped."""
        if "index_cache" in given:
            given["cache"] = given.pop("index_cache")
        if self.op in ("fused_qkv_matmul", "linear"):
            weight = given["weight"]
            if isinstance(weight, np.ndarray):
                given["weight"] = self.weight(weight, given.pop("weight_scale", None), given.pop("quant", None))
        if self.op == "mla_prefill_plan":
            given["chunks"] = self.chunks(given, given.pop("buffer_tokens"))
        if self.op == "mla_prefill":
            chunks = self.chunks(given, 16384)
            plan = {name: given[name] for name in ("row_offsets", "cache", "layer")} | {"chunks": chunks}
            made = self.make("quire_mla_prefill_plan_args", plan)
            assert self.interface.library.quire_mla_prefill_plan(made, None) == 0, self.interface.last_error()
            given["chunks"] = chunks
        return given
