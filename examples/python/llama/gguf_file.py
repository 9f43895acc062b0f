# SPDX-License-Identifier: Apache-2.0
"""A GGUF file: metadata and tensors as views of the mapped file.

The header is read here rather than by `gguf.GGUFReader`, which trusts what it reads (a length of 2^60 is believed) and
takes seconds for a vocabulary. Every length is held against what is left of the file before anything of that size is
made, so that a broken file costs an error and nothing else. `gguf` has the table of types and the dequantizers.

    "GGUF", u32 version, u64 tensors, u64 pairs · pairs: key, type, value · tensors: name, dims, type, offset · data
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 16
MAX_KEY_BYTES = 1 << 16
STRING, ARRAY = 8, 9
# Value types by their number in the file; strings and arrays are read on their own.
SCALARS = dict(enumerate(("<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?"))) | {10: "<u8", 11: "<i8", 12: "<f8"}
PLAIN = {GGMLQuantizationType.F32: np.float32, GGMLQuantizationType.F16: np.float16}


def refuse(path: object, field: str, expected: str, actual: object) -> NoReturn:
    """The one kind of error of a file that cannot be used."""
    shown = str(actual)
    shown = shown if len(shown) <= 120 else shown[:117] + "..."
    raise ValueError(f"{path}: '{field}' must be {expected}, got {shown}")


@dataclass(frozen=True, eq=False)
class Tensor:
    """A matrix or vector of the file. `data` is [rows, bytes of a row] uint8, or of floats where the type is one."""

    path: Path
    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]  # [rows, columns], the slowest first: the file's dims the other way round
    data: np.ndarray

    def floats(self, rows: Any = slice(None)) -> np.ndarray:
        """Some rows as float32."""
        try:
            return np.ascontiguousarray(dequantize(np.ascontiguousarray(self.data[rows]), self.type), np.float32)
        except NotImplementedError:
            refuse(self.path, f"type of {self.name}", "one that gguf can dequantize", self.type.name)


class _Cursor:
    """Reads the header from its start, and never past the end of the file."""

    def __init__(self, path: Path, view: memoryview) -> None:
        self.path, self.view, self.at = path, view, 0

    def left(self) -> int:
        return len(self.view) - self.at

    def take(self, count: int, field: str) -> memoryview:
        if count > self.left():
            refuse(self.path, field, f"{count} bytes at {self.at}", f"a file that ends after {self.left()}")
        self.at += count
        return self.view[self.at - count : self.at]

    def number(self, code: str, field: str) -> int:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), field))[0]

    def count(self, field: str, least_bytes: int) -> int:
        """How many things follow, each of at least so many bytes."""
        count = self.number("Q", field)
        if count > self.left() // least_bytes:
            refuse(self.path, field, f"at most {self.left() // least_bytes}, as the file's size allows", count)
        return count

    def text(self, field: str, most: int | None = None) -> str:
        size = self.count(f"length of {field}", 1)
        if most is not None and size > most:
            refuse(self.path, f"length of {field}", f"at most {most}", size)
        try:
            return str(self.take(size, field), "utf-8")
        except UnicodeDecodeError as error:
            refuse(self.path, field, "UTF-8", error)

    def value(self, kind: int, field: str) -> Any:
        if kind == STRING:
            return self.text(field)
        if kind == ARRAY:
            return self.array(field)
        if kind not in SCALARS:
            refuse(self.path, f"type of {field}", f"one of {sorted((*SCALARS, STRING, ARRAY))}", kind)
        dtype = np.dtype(SCALARS[kind])
        return np.frombuffer(self.take(dtype.itemsize, field), dtype)[0].item()

    def array(self, field: str) -> Any:
        kind = self.number("I", f"type of {field}")
        if kind == STRING:
            return [self.text(field) for _ in range(self.count(f"length of {field}", 8))]
        if kind not in SCALARS:
            refuse(self.path, f"type of the elements of {field}", f"one of {sorted((*SCALARS, STRING))}", kind)
        dtype = np.dtype(SCALARS[kind])
        count = self.count(f"length of {field}", dtype.itemsize)
        return np.frombuffer(self.take(count * dtype.itemsize, field), dtype)


class GgufFile:
    """The checked contents of a file: `metadata` by key, `tensors` by name. It stays mapped as long as views live."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with open(self.path, "rb") as file:
            size = file.seek(0, 2)
            if size < 24:
                refuse(self.path, "header", "24 bytes or more", f"a file of {size}")
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        cursor = _Cursor(self.path, view)
        magic = bytes(cursor.take(4, "magic"))
        if magic != MAGIC:
            refuse(self.path, "magic", repr(MAGIC), repr(magic))
        version = cursor.number("I", "version")
        if version not in VERSIONS:
            refuse(self.path, "version", f"one of {VERSIONS}, little-endian", version)
        num_tensors = cursor.number("Q", "number of tensors")
        num_pairs = cursor.count("number of metadata pairs", 13)
        self.metadata = self._read_pairs(cursor, num_pairs)
        self.tensors = self._read_tensors(cursor, num_tensors)

    def _read_pairs(self, cursor: _Cursor, count: int) -> dict[str, Any]:
        pairs: dict[str, Any] = {}
        for index in range(count):
            key = cursor.text(f"key {index}", MAX_KEY_BYTES)
            if key in pairs:
                refuse(self.path, f"key {index}", "a new one", repr(key))
            pairs[key] = cursor.value(cursor.number("I", f"type of {key}"), key)
        return pairs

    def _read_tensors(self, cursor: _Cursor, count: int) -> dict[str, Tensor]:
        if count > cursor.left() // 32:
            refuse(self.path, "number of tensors", f"at most {cursor.left() // 32}, as the file's size allows", count)
        infos: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for index in range(count):
            name = cursor.text(f"name of tensor {index}", MAX_KEY_BYTES)
            if name in infos:
                refuse(self.path, f"name of tensor {index}", "a new one", repr(name))
            dims = cursor.number("I", f"dims of {name}")
            if not 1 <= dims <= MAX_DIMS:
                refuse(self.path, f"number of dims of {name}", f"1 to {MAX_DIMS}", dims)
            shape = tuple(cursor.number("Q", f"dims of {name}") for _ in range(dims))[::-1]
            infos[name] = shape, cursor.number("I", f"type of {name}"), cursor.number("Q", f"offset of {name}")
        alignment = self.number("general.alignment", 8, MAX_ALIGNMENT, default=32)
        if alignment % 8:
            refuse(self.path, "general.alignment", "a multiple of 8", alignment)
        start = -(-cursor.at // alignment) * alignment
        return {name: self._tensor(name, cursor.view, start, alignment, *info) for name, info in infos.items()}

    def _tensor(
        self, name: str, view: memoryview, start: int, alignment: int, shape: tuple[int, ...], kind: int, offset: int
    ) -> Tensor:
        try:
            kind = GGMLQuantizationType(kind)
            block, block_bytes = GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            refuse(self.path, f"type of {name}", "a type that gguf knows", kind)
        if shape[-1] % block:
            refuse(self.path, f"columns of {name}", f"a multiple of {block}, the block of {kind.name}", shape[-1])
        if offset % alignment:
            refuse(self.path, f"offset of {name}", f"a multiple of {alignment}", offset)
        rows = 1
        for extent in shape[:-1]:  # Python's whole numbers do not overflow
            rows *= extent
        row_bytes = shape[-1] // block * block_bytes
        if rows * row_bytes == 0 or start + offset + rows * row_bytes > len(view):
            what = f"not empty, within the {max(0, len(view) - start)} bytes of data"
            refuse(self.path, f"extent of {name}", what, f"{rows * row_bytes} bytes at {offset}")
        data = np.frombuffer(view, np.uint8, rows * row_bytes, start + offset).reshape(rows, row_bytes)
        if kind in PLAIN:
            data = data.view(PLAIN[kind])
        return Tensor(self.path, name, kind, shape, data.reshape(*shape[:-1], -1))

    def number(self, key: str, least: float, most: float, *, default: Any = None) -> Any:
        """A number of the metadata, a whole one if the bounds are."""
        value = self.metadata.get(key, default)
        whole = isinstance(least, int)
        kinds = (int,) if whole else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not least <= value <= most:
            kind = "a whole number" if whole else "a number"
            refuse(self.path, key, f"{kind} from {least} to {most}", "nothing" if value is None else repr(value))
        return value

    def strings(self, key: str) -> list[str]:
        value = self.metadata.get(key)
        if not isinstance(value, list):
            refuse(self.path, key, "an array of strings", type(value).__name__)
        return value

    def string(self, key: str, default: str | None = None) -> str:
        value = self.metadata.get(key, default)
        if not isinstance(value, str):
            refuse(self.path, key, "a string", type(value).__name__)
        return value

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor of that name, which must be of that shape."""
        found = self.tensors.get(name)
        if found is None:
            refuse(self.path, name, f"a tensor {list(shape)}", "none")
        if found.shape != shape:
            refuse(self.path, f"shape of {name}", str(list(shape)), list(found.shape))
        return found
