# SPDX-License-Identifier: Apache-2.0
"""A wrong call names op, argument, what was expected and what came, and changes nothing."""

import numpy as np
import pytest
import quire
import torch
from problems import make_cache, offsets

NEW, CACHED = [3, 1], [2, 5]


def call(rng, **changes):
    """flash_attention of a small problem with some arguments changed, by name."""
    cache = make_cache(NEW, CACHED, rng=rng)
    for name in ("blocks", "cache_lengths", "page_table", "scales", "row_format", "max_seq_length"):
        if name in changes:
            setattr(cache, name, changes.pop(name))
    arguments = {
        "q": np.zeros((4, 2, 8), np.float32),
        "row_offsets": offsets(NEW),
        "cache": cache,
        "layer": 0,
    }
    arguments.update(changes)
    return quire.flash_attention(**arguments)


def test_the_baseline_is_valid(rng):
    assert call(rng).shape == (4, 2, 8)


@pytest.mark.parametrize(
    ("error", "argument", "changes"),
    [
        (ValueError, "q", {"q": np.zeros((4, 8), np.float32)}),
        (ValueError, "q", {"q": np.zeros((4, 3, 8), np.float32)}),
        (ValueError, "q", {"q": np.zeros((4, 2, 9), np.float32)}),
        (TypeError, "q", {"q": np.zeros((4, 2, 8), np.int32)}),
        (TypeError, "q", {"q": np.zeros((4, 2, 8))}),
        (TypeError, "q", {"q": [1.0]}),
        (ValueError, "row_offsets", {"row_offsets": offsets([3, 1, 0])}),
        (ValueError, "row_offsets", {"row_offsets": np.array([0, 3, 5], np.uint32)}),
        (ValueError, "row_offsets", {"row_offsets": np.array([0, 5, 4], np.uint32)}),
        (ValueError, "row_offsets", {"row_offsets": np.array([0, -1, 4], np.int32)}),
        (TypeError, "row_offsets", {"row_offsets": np.array([0, 3, 4], np.int64)}),
        (TypeError, "cache", {"cache": None}),
        (ValueError, "layer", {"layer": 2}),
        (ValueError, "layer", {"layer": -1}),
        (TypeError, "layer", {"layer": "0"}),
        (TypeError, "layer", {"layer": 0.5}),
        (ValueError, "cache.blocks", {"blocks": np.zeros((4, 2, 1, 4, 8), np.float32)}),
        (ValueError, "cache.blocks", {"blocks": np.zeros((4, 3, 1, 4, 2, 8), np.float32)}),
        (TypeError, "cache.blocks", {"blocks": np.zeros((4, 2, 1, 4, 2, 8), np.int32)}),
        (ValueError, "cache.cache_lengths", {"cache_lengths": np.zeros((2, 1), np.uint32)}),
        (TypeError, "cache.cache_lengths", {"cache_lengths": np.zeros(2, np.float32)}),
        (ValueError, "cache.page_table", {"page_table": np.zeros((3, 4), np.uint32)}),
        (TypeError, "cache.page_table", {"page_table": np.zeros((2, 4), np.int64)}),
        (TypeError, "cache.row_format", {"row_format": "656"}),
        (TypeError, "cache.max_seq_length", {"max_seq_length": "many"}),
        (ValueError, "softcap", {"softcap": -1.0}),
        (ValueError, "scale", {"scale": float("nan")}),
        (TypeError, "scale", {"scale": "big"}),
        (ValueError, "alibi_slopes", {"alibi_slopes": np.zeros(3, np.float32)}),
        (TypeError, "alibi_slopes", {"alibi_slopes": np.zeros(2, np.float16)}),
        (ValueError, "sinks", {"sinks": np.zeros((2, 1), np.float32)}),
        (ValueError, "out", {"out": np.zeros((4, 2, 9), np.float32)}),
        (TypeError, "out", {"out": np.zeros((4, 2, 8), np.int32)}),
        (TypeError, "batch_invariant", {"batch_invariant": "yes"}),
        (TypeError, "allow_fp8_products", {"allow_fp8_products": "yes"}),
    ],
)
def test_the_argument_is_named(error, argument, changes, rng):
    with pytest.raises(error, match=f"^flash_attention: '{argument}' must be .*, got ") as raised:
        call(rng, **changes)
    assert raised.value.op == "flash_attention"
    assert raised.value.argument == argument
    assert raised.value.expected
    assert raised.value.actual
    assert str(raised.value) == (
        f"flash_attention: '{argument}' must be {raised.value.expected}, got {raised.value.actual}"
    )


def test_the_sentence_of_the_design(rng):
    cache = make_cache([1], [0], rng=rng, heads=1)
    x = np.zeros((1, 16), np.float32)
    with pytest.raises(ValueError, match=r"^fused_qkv_matmul: 'weight' must be f32\[24, 16\], got f32\[16, 24\]$"):
        quire.fused_qkv_matmul(
            x, offsets([1]), np.zeros((16, 24), np.float32), cache, 0, out=np.zeros((1, 8), np.float32)
        )


def test_nothing_is_written_after_an_error(rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    before = cache.blocks.copy()
    out = np.full((4, 8), 3, np.float32)
    with pytest.raises(ValueError, match="'bias'"):
        quire.fused_qkv_matmul(
            np.zeros((4, 16), np.float32), offsets(NEW), np.zeros((40, 16), np.float32), cache, 0,
            bias=np.zeros(39, np.float32), out=out,
        )
    np.testing.assert_array_equal(cache.blocks, before)
    assert (out == 3).all()


def test_output_that_overlaps_an_input(rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    q = np.zeros((4, 2, 8), np.float32)
    with pytest.raises(ValueError, match="flash_attention: '(q|out)' must be"):
        quire.flash_attention(q, offsets(NEW), cache, 0, out=q)


def test_page_table_too_short_for_the_lengths(rng):
    cache = make_cache(NEW, CACHED, rng=rng, page_size=4)
    cache.page_table = np.ascontiguousarray(cache.page_table[:, :1])
    with pytest.raises(ValueError, match="flash_attention: 'cache"):
        quire.flash_attention(np.zeros((4, 2, 8), np.float32), offsets(NEW), cache, 0)


def test_unknown_kernel_is_not_implemented(rng):
    with quire.using(kernel="quantum"), pytest.raises(NotImplementedError, match="flash_attention"):
        call(rng)
    assert call(rng).shape == (4, 2, 8)  # the option ended with its block


def test_torch_dtype_in_the_message(rng):
    with pytest.raises(TypeError, match=r"got torch\.float64"):
        call(rng, q=torch.zeros(4, 2, 8, dtype=torch.float64))


def test_unexpected_keyword():
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        quire.merge_states(np.zeros((1, 1, 1, 1), np.float32), np.zeros((1, 1, 1), np.float32), lse=None)
