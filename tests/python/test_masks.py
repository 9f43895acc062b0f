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


BEFORE = range(-CACHED, 0)  # cached keys, counted from the first new one
BOUNDS = np.array([[0, 11], [3, 7], [6, 4], [-(2**31), 2**31 - 1], [9, 12]], np.int32)


def between(i, t):
    return BOUNDS[i, 0] <= t < BOUNDS[i, 1]


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("join", "visible"),
    [
        (lambda own: own, lambda i, t: between(i, t)),
        (lambda own: own & quire.causal(), lambda i, t: between(i, t) and t <= CACHED + i),
        (lambda own: quire.causal() | own, lambda i, t: between(i, t) or t <= CACHED + i),
        (lambda own: own & quire.sliding_window(3), lambda i, t: between(i, t) and abs(CACHED + i - t) < 3),
        (lambda own: own & quire.tree(np.eye(NEW, dtype=bool)), lambda i, t: between(i, t) and t - CACHED in (i, *BEFORE)),
    ],
    ids=["alone", "and causal", "or causal", "and window", "and tree"],
)
def test_key_intervals_show_what_lies_between_their_bounds(convert, join, visible, rng):
    expected = [[visible(i, t) for t in range(KEYS)] for i in range(NEW)]
    columns = convert(BOUNDS)
    strided = quire.key_intervals(columns[:, 0], columns[:, 1])
    dense = quire.key_intervals(convert(BOUNDS[:, 0].copy()), convert(BOUNDS[:, 1].copy()))
    for own in (strided, dense):
        np.testing.assert_array_equal(seen_keys(join(own), rng), expected)


def test_one_bound_for_all_tokens(rng):
    end = torch.tensor([4], dtype=torch.int32).expand(NEW)
    expected = np.broadcast_to(np.arange(KEYS) < 4, (NEW, KEYS))
    np.testing.assert_array_equal(seen_keys(quire.key_intervals(torch.zeros_like(end), end), rng), expected)


ZEROS = np.zeros(NEW, np.int32)


@pytest.mark.parametrize(
    ("begin", "end", "error", "says"),
    [
        (ZEROS[1:], ZEROS, ValueError, r"'mask.begin' must be i32\[5\], got i32\[4\]"),
        (ZEROS, np.zeros(NEW + 1, np.int32), ValueError, r"'mask.end' must be i32\[5\], got i32\[6\]"),
        (BOUNDS, BOUNDS, ValueError, r"'mask.begin' must be i32\[5\], got i32\[5, 2\]"),
        (ZEROS.astype(np.int64), ZEROS, TypeError, r"'mask.begin' must be i32, got i64\[5\]"),
        (ZEROS, ZEROS.astype(np.uint32), TypeError, r"'mask.end' must be i32, got u32\[5\]"),
        (ZEROS.astype(np.float32), ZEROS, TypeError, r"'mask.begin' must be i32, got f32\[5\]"),
    ],
)
def test_bounds_of_another_form(begin, end, error, says, rng):
    with pytest.raises(error, match="flash_attention: " + says):
        seen_keys(quire.causal() & quire.key_intervals(begin, end), rng)


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (quire.causal(), "causal"),
        (quire.causal() | quire.key_intervals(BOUNDS[:, 0], BOUNDS[:, 1]), "causal | key_intervals"),
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
