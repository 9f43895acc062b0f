# SPDX-License-Identifier: Apache-2.0
"""Every code of every small float against ml_dtypes and numpy, and rounding at the points where it is hard."""

import ml_dtypes
import numpy as np
import pytest
from problems import round_once
from quire import _quire

FLOATS = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
}
SATURATING = ("fp8_e4m3", "fp8_e5m2")


def all_codes(name):
    width = np.dtype(FLOATS[name]).itemsize
    return np.arange(256**width, dtype=np.uint8 if width == 1 else np.uint16).view(FLOATS[name])


def numbers(codes):
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return codes.astype(np.float64)


def encode(name, values):
    return np.frombuffer(_quire.encode(name, np.asarray(values, np.float64).tolist()), FLOATS[name])


def expected_codes(name, values):
    """What the outside says: a cast of float64, after saturation where Quire's stores saturate."""
    largest = float(ml_dtypes.finfo(FLOATS[name]).max)
    clipped = np.clip(values, -largest, largest) if name in SATURATING else values
    with np.errstate(over="ignore"):
        return clipped.astype(FLOATS[name])


def assert_same(actual, expected):
    """The same bits, any NaN for a NaN."""
    nan = np.isnan(expected.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(actual.astype(np.float64)), nan)
    unsigned = np.uint8 if actual.itemsize == 1 else np.uint16
    np.testing.assert_array_equal(actual[~nan].view(unsigned), expected[~nan].view(unsigned))


@pytest.mark.parametrize("name", FLOATS)
def test_decode_every_code(name):
    codes = all_codes(name)
    decoded = np.array(_quire.decode(name, codes.tobytes()))
    expected = numbers(codes)
    np.testing.assert_array_equal(decoded, expected)
    finite = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(decoded[finite]), np.signbit(expected[finite]))


@pytest.mark.parametrize("name", FLOATS)
def test_every_number_survives_a_round_trip(name):
    codes = all_codes(name)
    values = numbers(codes)
    assert_same(encode(name, values), expected_codes(name, values))


@pytest.mark.parametrize("name", FLOATS)
def test_encode_halfway_and_beside(name):
    values = np.unique(numbers(all_codes(name)))
    values = values[np.isfinite(values)]
    half = (values[:-1] + values[1:]) / 2
    points = np.concatenate([half, np.nextafter(half, np.inf), np.nextafter(half, -np.inf)])
    np.testing.assert_array_equal(numbers(encode(name, points)), numbers(round_once(points, FLOATS[name])))


@pytest.mark.parametrize("name", FLOATS)
def test_encode_dense_float32(name):
    words = np.arange(0, 2**32, 65521, dtype=np.uint64).astype(np.uint32)  # a prime stride over all of float32
    values = words.view(np.float32)
    values = values[np.isfinite(values)]
    assert_same(encode(name, values), expected_codes(name, values))


@pytest.mark.parametrize("name", FLOATS)
def test_encode_subnormals(name):
    smallest = float(ml_dtypes.finfo(FLOATS[name]).smallest_subnormal)
    points = np.array([0.25, 0.5, 0.5000001, 0.75, 1, 1.5, 2.5, 3.5]) * smallest
    expected = np.array([0, 0, 1, 1, 1, 2, 2, 4]) * smallest
    np.testing.assert_array_equal(encode(name, points).astype(np.float64), expected)
    np.testing.assert_array_equal(encode(name, -points).astype(np.float64), -expected)
    assert np.signbit(encode(name, [-smallest / 4]).astype(np.float64))[0]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("fp8_e4m3", 448.0, 448.0),
        ("fp8_e4m3", 464.0, 448.0),
        ("fp8_e4m3", 1e30, 448.0),
        ("fp8_e4m3", -np.inf, -448.0),
        ("fp8_e5m2", 57344.0, 57344.0),
        ("fp8_e5m2", 61440.0, 57344.0),
        ("fp8_e5m2", np.inf, 57344.0),
        ("f16", 65519.0, 65504.0),
        ("f16", 65520.0, np.inf),
        ("f16", -np.inf, -np.inf),
        ("bf16", 3.396e38, 3.3895313892515355e38),
        ("bf16", 3.4028e38, np.inf),
        ("bf16", 1e300, np.inf),
    ],
)
def test_encode_overflow(name, value, expected):
    assert encode(name, [value]).astype(np.float64)[0] == expected


@pytest.mark.parametrize("name", FLOATS)
def test_nan_stays_nan(name):
    assert np.isnan(encode(name, [np.nan, -np.nan]).astype(np.float64)).all()


def test_no_double_rounding():
    # Just above the halfway point of bf16's 1 and 1 + 2^-7, by less than a float32 can hold.
    assert encode("bf16", [1 + 2.0**-8 + 2.0**-40]).astype(np.float64)[0] == 1 + 2.0**-7
    assert encode("f16", [1 + 2.0**-11 + 2.0**-40]).astype(np.float64)[0] == 1 + 2.0**-10
    assert encode("fp8_e4m3", [1 + 2.0**-4 + 2.0**-40]).astype(np.float64)[0] == 1 + 2.0**-3


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("i8", [-200, -128, -0.5, 0.5, 1.5, 126.6, 200, np.nan], [-128, -128, 0, 0, 2, 127, 127, 0]),
        ("u8", [-3, 0.5, 2.5, 254.6, 300, np.nan], [0, 0, 2, 255, 255, 0]),
        ("i4", [-9, -8, 7, 8], [-8, -8, 7, 7]),
        ("u4", [-1, 3, 15, 16], [0, 3, 15, 15]),
        ("i32", [-(2.0**40), -5, 2.0**40], [-(2**31), -5, 2**31 - 1]),
        ("u32", [-1, 7, 2.0**40], [0, 7, 2**32 - 1]),
        ("i64", [-3, 2.0**52], [-3, 2**52]),
        ("f32", [0.1, -np.inf], [float(np.float32(0.1)), -np.inf]),
    ],
)
def test_other_types(name, values, expected):
    assert _quire.decode(name, _quire.encode(name, values)) == expected


def test_four_bit_codes_low_nibble_first():
    assert _quire.encode("u4", [1, 15]) == b"\xf1"
    assert _quire.decode("i4", b"\x8f") == [-1, -8]


def test_unknown_dtype():
    with pytest.raises(ValueError, match="'dtype' must be .*, got 'f12'"):
        _quire.decode("f12", b"")


def test_e8m0_is_decoded_as_ml_dtypes_has_it():
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu)
    np.testing.assert_array_equal(np.array(_quire.decode("e8m0", codes.tobytes())), numbers(codes))


def test_e8m0_rounds_up_to_a_power_of_two(rng):
    values = np.exp2(rng.uniform(-140, 140, 2000))
    decoded = np.array(_quire.decode("e8m0", _quire.encode("e8m0", values.tolist())))
    inside = (values > 2.0**-127) & (values <= 2.0**127)
    np.testing.assert_array_equal(decoded[inside], np.exp2(np.ceil(np.log2(values[inside]))))
    np.testing.assert_array_equal(decoded[values <= 2.0**-127], 2.0**-127)
    np.testing.assert_array_equal(decoded[values > 2.0**127], 2.0**127)
