# SPDX-License-Identifier: Apache-2.0
"""`using`: what a block chooses reaches the ops inside it, and leaves no trace."""

import numpy as np
import quire
from problems import make_cache, offsets
from quire import _call


def overlaps_previous() -> bool:
    """What an op called here would be told."""
    return _call.context(np.zeros(1, np.float32)).overlaps_previous


def test_overlapping_reaches_the_ops_of_the_block():
    assert not overlaps_previous()
    with quire.using(overlaps_previous=True):
        assert overlaps_previous()
        with quire.using(num_threads=1):
            assert overlaps_previous()
        with quire.using(overlaps_previous=False):
            assert not overlaps_previous()
        assert overlaps_previous()
    assert not overlaps_previous()


def test_overlapping_changes_no_result_on_the_cpu(rng):
    x, weight = rng.standard_normal((5, 16)).astype(np.float32), rng.standard_normal((56, 16)).astype(np.float32)
    results = []
    for overlaps in (False, True):
        cache = make_cache([3, 2], [2, 0], rng=np.random.default_rng(1))
        with quire.using(overlaps_previous=overlaps):
            q = quire.fused_qkv_matmul(x, offsets([3, 2]), weight, cache, 0)
        results.append((q, cache.blocks))
    for plain, overlapping in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, overlapping)
