# SPDX-License-Identifier: Apache-2.0
"""Capsules that no installed framework makes, built by hand from the DLPack ABI."""

import ctypes

import numpy as np
import pytest
from quire import _quire

CPU, CUDA_HOST, METAL = 1, 3, 8
INT, UINT, FLOAT, BFLOAT, E4M3FN, E5M2 = 0, 1, 2, 4, 10, 12
PADDED = 4


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, DESTRUCTOR]


class Producer:
    """Hands out one capsule over `memory`, and notes when its destructor ran."""

    def __init__(self, memory, shape, *, code=FLOAT, bits=32, lanes=1, strides=None, byte_offset=0, device=CPU,
                 version=(1, 0), flags=0):
        to_c = lambda numbers: (ctypes.c_int64 * len(numbers))(*numbers)
        tensor = Tensor(
            memory.ctypes.data, device, 0, len(shape), code, bits, lanes, to_c(shape),
            None if strides is None else to_c(strides), byte_offset,
        )
        self.memory = memory
        self.device = device
        self.destroyed = 0
        self.destructor = DESTRUCTOR(self.on_destroy)
        self.name = b"dltensor" if version is None else b"dltensor_versioned"
        self.managed = (
            Managed(tensor, None, None) if version is None else ManagedVersioned(*version, None, None, flags, tensor)
        )

    def on_destroy(self, _capsule):
        self.destroyed += 1

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **_arguments):
        return new_capsule(ctypes.addressof(self.managed), self.name, self.destructor)


@pytest.fixture
def memory():
    return np.zeros(64, np.uint8)


@pytest.mark.parametrize("version", [None, (1, 0), (1, 9)])
def test_byte_offset_and_dense_strides(version, memory):
    producer = Producer(memory, [2, 3], byte_offset=16, version=version)
    seen = _quire.describe_tensor(producer)
    assert seen["address"] == memory.ctypes.data + 16
    assert seen["strides"] == (3, 1)  # no strides in the capsule: row-major
    assert producer.destroyed == 1  # the capsule was given back, unconsumed, when the call ended


def test_the_capsule_is_given_back_after_an_error(memory):
    producer = Producer(memory, [2], code=FLOAT, bits=64)
    with pytest.raises(TypeError):
        _quire.describe_tensor(producer)
    assert producer.destroyed == 1


@pytest.mark.parametrize(
    ("code", "bits", "name"),
    [(UINT, 4, "u4"), (INT, 4, "i4"), (E4M3FN, 8, "fp8_e4m3"), (E5M2, 8, "fp8_e5m2"), (14, 8, "e8m0"), (BFLOAT, 16, "bf16")],
)
def test_type_codes(code, bits, name, memory):
    assert _quire.describe_tensor(Producer(memory, [2, 4], code=code, bits=bits))["dtype"] == name


@pytest.mark.parametrize(
    "arguments",
    [
        {"code": UINT, "bits": 4, "flags": PADDED},  # one 4-bit number per byte
        {"code": FLOAT, "bits": 32, "lanes": 4},
        {"code": 7, "bits": 8},  # float8_e3m4
        {"code": BFLOAT, "bits": 32},
    ],
)
def test_types_that_are_not_ours(arguments, memory):
    with pytest.raises(TypeError, match="'tensor' must be float32, "):
        _quire.describe_tensor(Producer(memory, [2], **arguments))


def test_pinned_host_memory_is_cpu(memory):
    assert _quire.describe_tensor(Producer(memory, [2], device=CUDA_HOST))["device"] == "cpu"


def test_another_device_is_named(memory):
    with pytest.raises(TypeError, match="a tensor on cpu or cuda, got DLPack device type 8"):
        _quire.describe_tensor(Producer(memory, [2], device=METAL))


def test_a_later_abi_is_refused(memory):
    with pytest.raises(TypeError, match="a DLPack 1.x tensor, got version 2"):
        _quire.describe_tensor(Producer(memory, [2], version=(2, 0)))


def test_read_only_flag(memory):
    producer = Producer(memory, [2], flags=1)
    _quire.describe_tensor(producer)
    with pytest.raises(ValueError, match="a writable tensor"):
        _quire.describe_tensor(producer, write=True)
