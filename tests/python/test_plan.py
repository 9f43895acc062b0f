# SPDX-License-Identifier: Apache-2.0
"""quire.plan: the kernel of a call chosen once, and the call run many times."""

import numpy as np
import pytest
import quire


def problem(batch: int = 2, dtype: type = np.float32):
    rng = np.random.default_rng(1)
    blocks = rng.standard_normal((8, 2, 1, 16, 2, 8)).astype(dtype)
    lengths = np.array([5, 20][:batch], np.uint32)
    cache = quire.PagedKVCache(blocks, lengths, np.arange(2 * batch, dtype=np.uint32).reshape(batch, 2))
    q = rng.standard_normal((batch, 4, 8)).astype(dtype)
    return q, np.arange(batch + 1, dtype=np.uint32), cache


def test_a_planned_call_gives_the_bits_of_the_op():
    q, offsets, cache = problem()
    step = quire.plan("flash_attention", q, offsets, cache, 0)
    assert step.plan.kernel == quire.supports("flash_attention", q, offsets, cache, 0).kernel
    for _ in range(3):
        np.testing.assert_array_equal(step(), quire.flash_attention(q, offsets, cache, 0))


def test_planning_computes_nothing():
    q, offsets, cache = problem()
    out = np.full_like(q, 7)
    quire.plan("flash_attention", q, offsets, cache, 0, out=out)
    assert (out == 7).all()


def test_contents_may_change_and_results_come_into_the_same_array():
    q, offsets, cache = problem()
    step = quire.plan("flash_attention", q, offsets, cache, 0)
    first = step()
    q *= 2
    cache.cache_lengths -= 1  # shorter than planned
    again = step()
    assert again is first
    np.testing.assert_array_equal(again, quire.flash_attention(q, offsets, cache, 0))


def test_arguments_in_place_of_the_planned_ones():
    q, offsets, cache = problem()
    step = quire.plan("flash_attention", q, offsets, cache, 0, return_lse=True)
    out, lse = np.empty_like(q), np.empty((2, 4), np.float32)
    got = step(q=3 * q, out=out, lse=lse)
    assert got[0] is out
    assert got[1] is lse
    want = quire.flash_attention(3 * q, offsets, cache, 0, return_lse=True)
    np.testing.assert_array_equal(out, want[0])
    np.testing.assert_array_equal(lse, want[1])
    other = quire.PagedKVCache(cache.blocks * 2, cache.cache_lengths, cache.page_table)
    np.testing.assert_array_equal(step(cache=other)[0], quire.flash_attention(q, offsets, other, 0))


def test_an_array_of_the_same_object_is_not_read_again():
    class Counted:
        """A numpy array behind __dlpack__, which counts."""

        def __init__(self, array: np.ndarray) -> None:
            self.array, self.shape, self.dtype, self.reads = array, array.shape, array.dtype, 0

        def __dlpack__(self, **kwargs: object) -> object:
            self.reads += 1
            return self.array.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    q, offsets, cache = problem()
    counted = Counted(q)
    step = quire.plan("flash_attention", counted, offsets, cache, 0, out=np.empty_like(q))
    reads = counted.reads
    step()
    step(out=np.empty_like(q))
    assert counted.reads == reads


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"q": np.zeros((3, 4, 8), np.float32)}, ValueError, "row_offsets"),
        ({"q": np.zeros((2, 8, 8), np.float32)}, ValueError, "out"),
        ({"q": np.zeros((2, 4, 8), np.float16)}, ValueError, "of the problem that was prepared"),
        ({"softcap": 30.0}, ValueError, "of the problem that was prepared"),
        ({"mask": "full"}, ValueError, "of the problem that was prepared"),
        ({"kv": None}, TypeError, "kv"),
    ],
)
def test_another_problem_is_refused(changed, error, text):
    q, offsets, cache = problem()
    step = quire.plan("flash_attention", q, offsets, cache, 0)
    before = step().copy()
    with pytest.raises(error, match=text):
        step(**changed)
    np.testing.assert_array_equal(step(), before)


def test_longer_sequences_are_another_problem():
    q, offsets, cache = problem()
    step = quire.plan("flash_attention", q, offsets, cache, 0)
    cache.cache_lengths += 1
    with pytest.raises(ValueError, match="of the problem that was prepared"):
        step()


def test_what_no_kernel_takes_cannot_be_planned():
    q, offsets, cache = problem()
    with quire.using(kernel="cuda"), pytest.raises(NotImplementedError, match="cuda"):
        quire.plan("flash_attention", q, offsets, cache, 0)


def test_options_are_those_of_the_plan():
    q, offsets, cache = problem()
    with quire.using(kernel="reference"):
        step = quire.plan("flash_attention", q, offsets, cache, 0)
    assert step.plan.kernel == "reference/flash_attention"
    np.testing.assert_array_equal(step(), step())


@pytest.mark.parametrize("op", [3, "flash"])
def test_only_ops_can_be_planned(op):
    with pytest.raises((TypeError, ValueError), match="plan: 'op'"):
        quire.plan(op)


def test_ops_that_return_one_of_their_arguments_or_nothing():
    q, offsets, cache = problem()
    x = np.ones((2, 2, 8), np.float32)
    store = quire.plan("store", x, offsets, cache, 0, side="key")
    assert store() is None
    assert (cache.blocks[0, 0, 0, 5] == 1).all()
    states, lses = np.ones((2, 3, 4, 8), np.float32), np.zeros((2, 3, 4), np.float32)
    merge = quire.plan("merge_states", states, lses)
    assert merge().shape == (3, 4, 8)


def test_errors_of_a_planned_call_name_pythons_arguments():
    q, offsets, cache = problem()
    step = quire.plan("flash_attention", q, offsets, cache, 0)
    with pytest.raises(ValueError, match="flash_attention: 'layer'") as caught:
        step(layer=7)
    assert caught.value.argument == "layer"
