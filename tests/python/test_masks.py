# SPDX-License-Identifier: Apache-2.0
"""Masks are values; what they mean is tested through attention over keys that show which ones were seen."""

import numpy as np
import pytest
import quire
import torch
from problems import make_cache, offsets

NEW, CACHED = 5, 6
KEYS = NEW + CACHED

MEANINGS = [
    ("causal", quire.causal(), lambda q, k: k <= q),
    ("full", quire.full(), lambda q, k: True),
    ("sliding_window", quire.sliding_window(3), lambda q, k: abs(q - k) < 3),
    ("chunked", quire.chunked(4), lambda q, k: q // 4 == k // 4),
    ("causal window", quire.causal() & quire.sliding_window(3), lambda q, k: k <= q and abs(q - k) < 3),
    ("either", quire.chunked(4) | quire.sliding_window(2), lambda q, k: q // 4 == k // 4 or abs(q - k) < 2),
    (
        "nested",
        quire.causal() & (quire.chunked(3) | quire.sliding_window(2)),
        lambda q, k: k <= q and (q // 3 == k // 3 or abs(q - k) < 2),
    ),
    ("text causal", "causal", lambda q, k: k <= q),
    ("text null", "null", lambda q, k: True),
    ("text window", "sliding_window_causal:3", lambda q, k: k <= q and abs(q - k) < 3),
    ("text chunk", "chunked_causal:4", lambda q, k: k <= q and q // 4 == k // 4),
]


def seen_keys(mask, rng):
    """A bool matrix [new tokens, keys]: equal scores, and value t is the unit vector of key t."""
    cache = make_cache([NEW], [CACHED], rng=rng, heads=1, head_dim=KEYS)
    for t in range(KEYS):
        page = cache.page_table[0, t // cache.page_size]
        cache.blocks[page, 1, 0, t % cache.page_size, 0] = np.eye(KEYS)[t]
    q = np.zeros((NEW, 1, KEYS), np.float32)
    return quire.flash_attention(q, offsets([NEW]), cache, 0, mask=mask)[:, 0] > 0


@pytest.mark.parametrize(("mask", "visible"), [m[1:] for m in MEANINGS], ids=[m[0] for m in MEANINGS])
def test_meaning(mask, visible, rng):
    expected = [[visible(CACHED + i, t) for t in range(KEYS)] for i in range(NEW)]
    np.testing.assert_array_equal(seen_keys(mask, rng), expected)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_])
def test_tree_sees_the_cache_and_its_ancestors(convert, dtype, rng):
    bits = rng.integers(0, 2, (NEW, NEW)).astype(dtype)
    expected = np.concatenate([np.ones((NEW, CACHED), bool), bits.astype(bool)], axis=1)
    np.testing.assert_array_equal(seen_keys(quire.tree(convert(bits)), rng), expected)


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (quire.causal(), "causal"),
        (quire.sliding_window(16) & quire.causal(), "sliding_window(16) & causal"),
        (quire.causal() & (quire.full() | quire.chunked(2)), "causal & (full | chunked(2))"),
        (quire.causal() & quire.full() & quire.chunked(2), "causal & full & chunked(2)"),
    ],
)
def test_repr(mask, text):
    assert repr(mask) == text


def test_masks_are_values():
    window = quire.sliding_window(4)
    joined = quire.causal() & window
    assert repr(window) == "sliding_window(4)"
    assert joined.right is window
    with pytest.raises(AttributeError):
        window.size = 5


@pytest.mark.parametrize("mask", ["diagonal", "chunked_causal:0", "sliding_window", "chunked:2x"])
def test_unknown_text(mask, rng):
    with pytest.raises(ValueError, match=r"flash_attention: 'mask' must be .*, got '" + mask):
        seen_keys(mask, rng)


def test_not_a_mask(rng):
    with pytest.raises(TypeError, match="flash_attention: 'mask' must be a str or a quire.Mask, got 3"):
        seen_keys(3, rng)
    with pytest.raises(TypeError):
        quire.causal() & "causal"


@pytest.mark.parametrize("mask", [quire.sliding_window(0), quire.chunked(-4)])
def test_size_out_of_range(mask, rng):
    with pytest.raises(ValueError, match="flash_attention: 'mask"):
        seen_keys(mask, rng)


def test_tree_of_wrong_width(rng):
    with pytest.raises(ValueError, match="flash_attention: 'mask"):
        seen_keys(quire.tree(np.ones((NEW, NEW - 1), np.uint8)), rng)
