# SPDX-License-Identifier: Apache-2.0
"""flash_attention against torch's scaled_dot_product_attention."""

import pytest
import torch
from outside import visibility
from outside.agreement import assert_near, assert_no_worse, assert_same_bits
from outside.attention_problem import LAYER, AttentionProblem
from outside.page_pool import NO_PAGE, ORDERS, PagePool
from outside.visibility import VISIBILITIES

import quire

F32, BF16, F16, F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64


def check_against_sdpa(problem: AttentionProblem, sees: visibility.Visibility, **arguments):
    actual = problem.quire(mask=sees.mask, **arguments)
    assert actual.dtype == problem.dtype
    truth = problem.sdpa(sees.rule, F64, **arguments)
    assert_no_worse(actual, problem.sdpa(sees.rule, problem.dtype, **arguments), truth)


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", VISIBILITIES)
def test_masks(name, dtype):
    check_against_sdpa(AttentionProblem(dtype=dtype), VISIBILITIES[name]())


@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (4, 2), (8, 2), (8, 1), (16, 1), (6, 2)])
def test_head_groups(heads, kv_heads):
    check_against_sdpa(AttentionProblem(heads=heads, kv_heads=kv_heads, head_dim=16), visibility.causal())


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128, 192, 256])
def test_head_dims(head_dim, dtype):
    problem = AttentionProblem(heads=2, kv_heads=1, head_dim=head_dim, dtype=dtype)
    check_against_sdpa(problem, visibility.causal())


@pytest.mark.parametrize(
    ("cached", "new"),
    [
        ((0,), (1,)),
        ((0,), (17,)),
        ((33,), (1,)),
        ((0, 0, 0), (0, 0, 0)),
        ((4, 0, 9), (0, 0, 0)),
        ((0, 13, 0, 7), (0, 1, 5, 2)),
        ((16, 15, 17, 1), (1, 1, 1, 1)),
        ((3, 8), (12, 9)),
    ],
    ids=lambda counts: "-".join(map(str, counts)),
)
def test_ragged_batches(cached, new):
    check_against_sdpa(AttentionProblem(cached=cached, new=new, page_size=8), visibility.causal())


@pytest.mark.parametrize("page_size", [1, 8, 16, 64])
@pytest.mark.parametrize("order", ORDERS)
def test_pages_give_the_bits_of_a_contiguous_cache(page_size, order):
    sizes = dict(cached=(19, 0, 66, 5), new=(3, 21, 1, 0))
    sees = visibility.both(visibility.causal(), visibility.window(40))
    contiguous = AttentionProblem(**sizes, page_size=128, order="identity")
    paged = AttentionProblem(**sizes, page_size=page_size, order=order)
    expected, expected_lse = contiguous.quire(mask=sees.mask, return_lse=True)
    actual, lse = paged.quire(mask=sees.mask, return_lse=True)
    assert_same_bits(actual, expected)
    assert_same_bits(lse, expected_lse)
    assert_no_worse(actual, paged.sdpa(sees.rule, F32), paged.sdpa(sees.rule, F64))


def test_heads_first_pages_give_the_same_bits():
    assert_same_bits(AttentionProblem(heads_first=True).quire(), AttentionProblem().quire())


@pytest.mark.parametrize("scale", [0.02, 1.0])
def test_scale(scale):
    check_against_sdpa(AttentionProblem(), visibility.causal(), scale=scale)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("softcap", [0.5, 5.0, 50.0])
def test_softcap(softcap, dtype):
    problem, sees = AttentionProblem(dtype=dtype), visibility.causal()
    truth, _ = problem.by_hand(sees.rule, F64, softcap=softcap)
    rival, _ = problem.by_hand(sees.rule, dtype, softcap=softcap)
    assert_no_worse(problem.quire(softcap=softcap), rival, truth)


@pytest.mark.parametrize("name", ["causal", "full", "window_causal"])
def test_alibi(name):
    slopes = torch.tensor([0.5, 0.25, 0.0625, -0.125])
    check_against_sdpa(AttentionProblem(), VISIBILITIES[name](), alibi_slopes=slopes)


@pytest.mark.parametrize("name", ["causal", "full", "window_of_one"])
def test_sinks(name):
    sinks = torch.tensor([0.0, 3.0, -20.0, 1.5])
    check_against_sdpa(AttentionProblem(), VISIBILITIES[name](), sinks=sinks)


def test_softcap_with_sinks_and_lse():
    problem, sees = AttentionProblem(), visibility.causal()
    sinks = torch.tensor([0.0, 3.0, -20.0, 1.5])
    truth, lse_truth = problem.by_hand(sees.rule, F64, softcap=2.0, sinks=sinks)
    actual, lse = problem.quire(softcap=2.0, sinks=sinks, return_lse=True)
    assert_near(actual, truth, 1e-6)
    assert_near(lse, lse_truth, 1e-6)


@pytest.mark.parametrize("name", VISIBILITIES)
def test_lse_is_torch_logsumexp(name):
    problem, sees = AttentionProblem(heads=4, kv_heads=1), VISIBILITIES[name]()
    _, lse = problem.quire(mask=sees.mask, return_lse=True)
    assert lse.dtype == F32
    assert_near(lse, problem.by_hand(sees.rule, F64)[1], 1e-6)


# Each row is a new token of a speculation tree: 0 → 1 → 3, 0 → 2 → 4, with itself visible.
TREE = torch.tensor(
    [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]], dtype=torch.uint8
)


@pytest.mark.parametrize("windowed", [False, True])
def test_tree(windowed):
    """Cached keys are visible, new ones as the tree says; positions are still those of the cache."""
    cached = 6
    problem = AttentionProblem(cached=(cached, 3), new=(5, 5))

    def sees_tree(queries, keys):
        first = int(queries[0, 0])
        return (keys < first) | ((keys >= first) & (TREE[:, (keys[0] - first).clamp(min=0)] != 0))

    sees = visibility.Visibility(sees_tree, quire.tree(TREE.repeat(2, 1)))
    if windowed:
        sees = visibility.both(sees, visibility.window(4))
    check_against_sdpa(problem, sees)


def test_row_that_sees_nothing_is_zero():
    bits = TREE.clone()
    bits[2] = 0
    problem = AttentionProblem(cached=(0,), new=(5,))
    out, lse = problem.quire(mask=quire.tree(bits), return_lse=True)
    assert (out[2] == 0).all() and (lse[2] == float("-inf")).all()
    assert (out[3] != 0).any() and torch.isfinite(lse[3]).all()
    sinks = torch.tensor([0.0, 3.0, -20.0, 1.5])
    out, lse = problem.quire(mask=quire.tree(bits), sinks=sinks, return_lse=True)
    assert (out[2] == 0).all()
    assert_near(lse[2], sinks, 1e-6)


def between(problem: AttentionProblem, bounds: dict[int, list[tuple[int, int]]]) -> visibility.Visibility:
    """Bounds of every token's keys: of each sequence, which is known by its cached tokens."""
    columns = torch.tensor([own for cached in problem.cached for own in bounds[cached]], dtype=torch.int32)

    def rule(queries, keys):
        own = torch.tensor(bounds[int(queries[0, 0])] if len(queries) else [(0, 0)])
        return (own[:, :1] <= keys) & (keys < own[:, 1:])

    return visibility.Visibility(rule, quire.key_intervals(columns[:, 0], columns[:, 1]))


def spans(problem: AttentionProblem, size: int) -> dict[int, list[tuple[int, int]]]:
    """Text and images of `size` tokens in turns: those of an image see all of it, whatever stands before."""

    def of(position):
        start = position // size * size
        return (start, start + size) if position // size % 2 else (position, position + 1)

    return {cached: [of(cached + i) for i in range(new)] for cached, new in zip(problem.cached, problem.new)}


RANDOM_BOUNDS = {
    5: [(0, 99), (2, 6), (-7, 1)],
    0: [(i // 2, i // 2 + 1 + i % 3) for i in range(7)],
    11: [(3, 12)],
    2: [],
}


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("join", ["alone", "and_window", "or_causal"])
def test_key_intervals(join, dtype):
    problem = AttentionProblem(dtype=dtype)
    sees = between(problem, RANDOM_BOUNDS)
    if join == "and_window":
        sees = visibility.both(sees, visibility.window(9))
    if join == "or_causal":
        sees = visibility.either(visibility.causal(), sees)
    check_against_sdpa(problem, sees)


@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (8, 2), (8, 1)])
def test_images_see_themselves(heads, kv_heads):
    """Causal or the same image, as a union and as the one interval that it is."""
    problem = AttentionProblem(cached=(13, 0, 40), new=(9, 37, 1), heads=heads, kv_heads=kv_heads, page_size=8)
    own = spans(problem, 4)
    sees = visibility.either(visibility.causal(), between(problem, own))
    check_against_sdpa(problem, sees)
    joined = {cached: [(0, max(cached + i + 1, end)) for i, (_, end) in enumerate(own[cached])] for cached in own}
    check_against_sdpa(problem, visibility.Visibility(sees.rule, between(problem, joined).mask))


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
def test_packed_documents(dtype):
    """Five documents in one row give what each gives alone."""
    sizes = (7, 1, 12, 5, 16)
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    problem = AttentionProblem(cached=(0,), new=(sum(sizes),), dtype=dtype)
    own = {0: [(end - size, end) for size, end in zip(sizes, ends) for _ in range(size)]}
    sees = visibility.both(visibility.causal(), between(problem, own))
    check_against_sdpa(problem, sees)
    packed = problem.quire(mask=sees.mask).split(sizes)
    for out, end, size in zip(packed, ends, sizes):
        rows = slice(end - size, end)
        q, k, v = problem.q[0][rows], problem.k[0][rows], problem.v[0][rows]
        offsets = torch.tensor([0, size], dtype=torch.uint32)
        alone = quire.flash_attention(q, offsets, k=k, v=v, key_offsets=offsets)
        assert_near(out.double(), alone.double(), 1e-6 if dtype == F32 else 0.02)


def test_empty_and_impossible_intervals():
    problem = AttentionProblem(cached=(4,), new=(6,))
    low, high = -(2**31), 2**31 - 1
    bounds = torch.tensor([(low, high), (high, low), (5, 5), (10, high), (low, 0), (9, 11)], dtype=torch.int32)
    out, lse = problem.quire(mask=quire.key_intervals(bounds[:, 0], bounds[:, 1]), return_lse=True)
    assert (out[1:5] == 0).all() and (lse[1:5] == float("-inf")).all()
    truth, lse_truth = problem.by_hand(lambda q, k: ((q == 4) & (k >= 0)) | (k == 9), F64)
    for row in (0, 5):
        assert_near(out[row], truth[row], 1e-6)
        assert_near(lse[row], lse_truth[row], 1e-6)


@pytest.mark.parametrize("sentinel", [None, NO_PAGE], ids=["num_pages", "all_ones"])
def test_unassigned_pages_are_masked(sentinel):
    """Pages that left the window were given back: their keys must count as if the mask hid them."""
    problem = AttentionProblem(cached=(14, 9), new=(2, 1), sentinel=sentinel)
    for sequence, column in [(0, 0), (0, 2), (1, 1)]:
        page = problem.pool.table[sequence][column]
        problem.pool.blocks[page] = float("nan")
        problem.pool.table[sequence][column] = problem.pool.table[sequence][-1]

    def rule(queries, keys):
        holes = {16: (0, 2), 10: (1,)}[keys.shape[1]]
        mapped = torch.tensor([int(key) // problem.page_size not in holes for key in keys[0]])
        return (keys <= queries) & mapped

    check_against_sdpa(problem, visibility.Visibility(rule, quire.causal()))


def test_other_layers_do_not_matter():
    """Only the named layer is read, and nothing is written."""
    problem = AttentionProblem()
    before = problem.pool.blocks.clone()
    expected = problem.quire()
    assert_same_bits(problem.pool.blocks, before, poisoned=True)
    problem.pool.blocks[:, :, 1 - LAYER] = 7.0
    assert_same_bits(problem.quire(), expected)


def test_a_sequence_alone_gives_the_bits_of_the_batch():
    batch = AttentionProblem(cached=(5, 0, 11), new=(3, 7, 1))
    expected = batch.quire(batch_invariant=True).split(batch.new)
    for sequence in range(3):
        pool, cached, new = batch.pool, batch.cached[sequence], batch.new[sequence]
        alone = AttentionProblem(cached=(cached,), new=(new,))
        alone.q, alone.pool = [batch.q[sequence]], pool
        table, pool.table = pool.table, [pool.table[sequence]]
        actual = alone.quire(batch_invariant=True)
        pool.table = table
        assert_same_bits(actual, expected[sequence])


@pytest.mark.parametrize("head_scales", [False, True], ids=["scale_per_row", "scale_per_16"])
def test_fp8_cache_with_scales(head_scales):
    """torch dequantizes the bytes that torch quantized; quire reads them where they lie."""
    problem = AttentionProblem(head_dim=32)
    slots = 2 if head_scales else 1
    pool = PagePool(
        capacities=problem.totals, row=32, kv_heads=2, dtype=torch.float8_e4m3fn, scale_slots=slots
    )
    for side, sides in enumerate((problem.k, problem.v)):
        for sequence, rows in enumerate(sides):
            groups = rows.reshape(*rows.shape[:2], slots, -1)
            scales = groups.abs().amax(-1) / 448
            bytes_ = (groups / scales[..., None]).to(torch.float8_e4m3fn)
            pool.write(LAYER, side, sequence, 0, bytes_.reshape(rows.shape), scales)
            sides[sequence] = (bytes_.double() * scales[..., None].double()).reshape(rows.shape)
    problem.pool = pool
    actual = problem.quire()
    truth = problem.sdpa(visibility.causal().rule, F64)
    assert_near(actual, truth, 2e-6)
