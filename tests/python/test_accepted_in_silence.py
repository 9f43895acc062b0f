# SPDX-License-Identifier: Apache-2.0
"""What looks like an argument and would be ignored, misread or cut off is an error."""

import time

import ml_dtypes
import numpy as np
import pytest
import quire
import torch
from calls import make_calls


def test_an_extra_without_a_cache():
    arguments = make_calls()["sparse_mla"]
    extra = quire.SparseExtra(None, 0, arguments["indices"])
    with pytest.raises(TypeError, match=r"^sparse_mla: 'extra.cache' must be a quire.PagedKVCache, got None$"):
        quire.sparse_mla(**arguments, extra=extra)


@pytest.mark.parametrize("op", ["flash_attention", "store", "mla_decode", "fused_qkv_matmul", "remap_sparse_indices"])
def test_a_table_of_scales_without_scales(op):
    arguments = make_calls()[op]
    arguments["cache"].scales_page_table = arguments["cache"].page_table
    with pytest.raises(ValueError, match=f"^{op}: 'cache.scales_page_table' must be absent without scales"):
        getattr(quire, op)(**arguments)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_codes_above_15(convert):
    codes = np.zeros((2, 4), np.uint8)
    codes[1, 2] = 16
    with pytest.raises(ValueError, match=r"^pack_int4: 'codes' must be from 0 to 15, got 16$"):
        quire.pack_int4(convert(codes))


@pytest.mark.parametrize(
    "codes",
    [
        np.zeros((2, 4), np.int32),
        np.zeros((2, 4), np.int8),
        np.zeros((2, 4), bool),
        np.zeros((2, 4), ml_dtypes.int4),
        torch.zeros(2, 4, dtype=torch.int64),
        [[1, 2]],
        None,
    ],
)
def test_codes_of_another_type(codes):
    with pytest.raises(TypeError, match=r"^pack_int4: 'codes' must be uint8 or uint4, got "):
        quire.pack_int4(codes)


def test_codes_of_another_shape():
    with pytest.raises(ValueError, match=r"^pack_int4: 'codes' must be \[N, an even K\]"):
        quire.pack_int4(np.zeros(4, np.uint8))
    assert quire.pack_int4(np.zeros((0, 4), np.uint8)).shape == (0, 2)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: quire.RowFormat.mla_fp8_block(512, 64, 0), "block"),
        (lambda: quire.RowFormat.mla_fp8_block(512, 64, -128), "block"),
        (lambda: quire.RowFormat.mla_fp8_block(512, 64, 2**31 - 1), "block"),
        (lambda: quire.RowFormat.mla_fp8_e8m0(448, 64, 0), "block"),
        (lambda: quire.RowFormat.mla_fp8_e8m0(448, 0), "rope"),
        (lambda: quire.RowFormat.mla_fp8_block(-512), "latent"),
        (lambda: quire.RowFormat.mla_fp8_block(512, 0), "rope"),
        (lambda: quire.RowFormat.mla_fp8_block(2**31 - 1, 64), "block"),
        (lambda: quire.RowFormat.mla_fp8_block(2**30, 2**30), "row"),
        (lambda: quire.RowFormat.mla_fp8_token(2**30, 2**28), "latent"),
        (lambda: quire.RowFormat.mla_fp8_token(2**31 - 1, 64), "row"),
        (lambda: quire.RowFormat.mla_fp8_token(512, -64), "rope"),
        (lambda: quire.RowFormat.uniform("bf16", -8), "width"),
        (lambda: quire.RowFormat.uniform("bf16", 0), "width"),
        (lambda: quire.RowFormat.uniform("f32", 2**30), "row"),
        (lambda: quire.RowFormat.uniform("f32", 2**40), "width"),
        (lambda: quire.RowFormat.uniform("f33", 8), "dtype"),
        (lambda: quire.RowFormat.scaled("i8", 8, 0), "granularity"),
        (lambda: quire.RowFormat.int4(0), "width"),
        (lambda: quire.RowFormat.int4(128, 0), "group"),
        (lambda: quire.RowFormat.int4(128, 32, "f33"), "scale_dtype"),
        (lambda: quire.RowFormat.scaled("i8", 8, 2**31 - 1), "granularity"),
    ],
)
def test_rows_that_cannot_be(make, argument):
    with pytest.raises(ValueError, match=f"^RowFormat: '{argument}' must be .*, got "):
        make()


@pytest.mark.parametrize(
    ("make", "op", "argument"),
    [
        (lambda: quire.RowFormat.uniform(None, 8), "RowFormat", "dtype"),
        (lambda: quire.RowFormat.uniform("bf16", 8.0), "RowFormat", "width"),
        (lambda: quire.RowFormat.uniform("bf16", True), "RowFormat", "width"),
        (lambda: quire.RowFormat.mla_fp8_block(rope_dtype=torch.bfloat16), "RowFormat", "rope_dtype"),
        (lambda: quire.RowFormat(None, 8), "RowFormat", "parts"),
        (lambda: quire.RowFormat([quire.RowPart("f32", 2), "f32"], 8), "RowFormat", "parts[1]"),
        (lambda: quire.RowFormat([quire.RowPart("f32", 2)], None), "RowFormat", "row_bytes"),
        (lambda: quire.RowPart("f32", "2"), "RowPart", "width"),
        (lambda: quire.RowPart("f32", 2, None), "RowPart", "offset_bytes"),
        (lambda: quire.RowPart("f32", 2, scale_source=1), "RowPart", "scale_source"),
    ],
)
def test_rows_of_wrong_types(make, op, argument):
    with pytest.raises(TypeError) as raised:
        make()
    assert (raised.value.op, raised.value.argument) == (op, argument)


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"width": -1}, "width"), ({"width": 0}, "width"), ({"width": 2**31}, "width"), ({"offset_bytes": -1}, "offset_bytes"),
        ({"scale_source": "plane"}, "granularity"), ({"scale_source": "in_row", "granularity": -4}, "granularity"),
        ({"scale_offset_bytes": -4}, "scale_offset_bytes"), ({"scale_source": "elsewhere"}, "scale_source"),
    ],
)
def test_parts_that_cannot_be(changes, argument):
    with pytest.raises(ValueError, match=f"^RowPart: '{argument}' must be .*, got "):
        quire.RowPart(**{"dtype": "fp8_e4m3", "width": 8} | changes)


def part(width, offset, **scale):
    return quire.RowPart("fp8_e4m3", width, offset, **scale)


IN_ROW = {"scale_source": "in_row", "granularity": 8}
OVERLAPPING = [
    [part(16, 0), part(16, 15)],
    [part(16, 0), part(16, 0)],
    [part(16, 16), part(16, 8)],
    [part(32, 0), part(4, 8)],
    [part(16, 0, scale_offset_bytes=12, **IN_ROW), part(8, 24)],
    [part(16, 0, scale_offset_bytes=16, **IN_ROW), part(8, 20)],
    [part(8, 0, scale_offset_bytes=16, **IN_ROW), part(8, 8, scale_offset_bytes=16, **IN_ROW)],
]


@pytest.mark.parametrize("parts", OVERLAPPING, ids=range(len(OVERLAPPING)))
def test_parts_that_overlap(parts):
    with pytest.raises(ValueError, match=r"^RowFormat: 'parts' must be apart .*, got parts that overlap in byte"):
        quire.RowFormat(parts, 40)


def test_parts_outside_the_row():
    with pytest.raises(ValueError, match="a part outside the row"):
        quire.RowFormat([part(16, 0), part(16, 30)], 40)
    with pytest.raises(ValueError, match="scales outside the row"):
        quire.RowFormat([part(16, 0, scale_offset_bytes=36, **IN_ROW)], 40)


def test_parts_that_touch_are_fine():
    row = quire.RowFormat([part(16, 24), part(16, 0, scale_offset_bytes=16, **IN_ROW)], 40)
    assert row.width == 32


def chain(count, join, grow):
    mask = quire.causal()
    for _ in range(count - 1):
        mask = join(*grow(mask))
    return mask


JOINS = [lambda left, right: left & right, lambda left, right: left | right]
GROWTHS = [lambda mask: (mask, quire.chunked(8)), lambda mask: (quire.chunked(8), mask)]


@pytest.mark.parametrize("grow", GROWTHS, ids=["to the left", "to the right"])
@pytest.mark.parametrize("join", JOINS, ids=["and", "or"])
def test_masks_joined_deep(join, grow):
    deepest = chain(64, join, grow)
    arguments = make_calls()["flash_attention"]
    assert quire.flash_attention(**arguments | {"mask": deepest}).shape == arguments["out"].shape
    assert repr(deepest).count("chunked") == 63
    with pytest.raises(ValueError, match=r"^mask: 'mask' must be of at most 64 masks joined, got 65$"):
        chain(20000, join, grow)


def test_masks_doubled():
    mask = quire.causal()
    with pytest.raises(ValueError, match="at most 64 masks joined, got 128"):
        for _ in range(60):
            mask = mask & mask


def test_masks_made_by_hand_are_read_once_and_no_deeper():
    deep = quire.causal()
    for _ in range(100_000):
        deep = quire.Mask("all_of", left=deep, right=quire.causal())
    wide = quire.causal()
    for _ in range(200):
        wide = quire.Mask("any_of", left=wide, right=wide)
    circle = quire.Mask("all_of", left=quire.causal(), right=quire.causal())
    object.__setattr__(circle, "right", circle)
    start = time.monotonic()
    for mask in (deep, wide, circle):
        with pytest.raises(ValueError, match=r"^flash_attention: 'mask' must be of at most 64 masks joined, got more$"):
            quire.flash_attention(**make_calls()["flash_attention"] | {"mask": mask})
        assert repr(mask).startswith("<quire.Mask")
    assert time.monotonic() - start < 5
