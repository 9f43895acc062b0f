# SPDX-License-Identifier: Apache-2.0
"""flash_attention over keys of its caller's choice, against torch's scaled_dot_product_attention: key_lengths of a
cache, and K and V of a ragged batch without one."""

import pytest
import torch
from outside import seeded, visibility
from outside.agreement import assert_near, assert_no_worse, assert_same_bits
from outside.attention_problem import LAYER, AttentionProblem
from outside.page_pool import offsets_of
from torch.nn.functional import scaled_dot_product_attention

import quire

F32, BF16, F16, F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64


def attend(q, k, v, rule, dtype, positions):
    """torch's attention of one sequence [queries, heads, .]; rows that see nothing are 0."""
    keys = torch.arange(k.shape[0])[None]
    sees = rule(positions[:, None], keys).expand(q.shape[0], k.shape[0])
    out = scaled_dot_product_attention(
        *(x.to(dtype).transpose(0, 1)[None] for x in (q, k, v)), attn_mask=sees[None, None], enable_gqa=True
    )[0].transpose(0, 1)
    return torch.where(sees.any(-1)[:, None, None], out, 0.0)


def lse_of(q, k, rule, positions):
    group = q.shape[1] // k.shape[1]
    scores = torch.einsum("qhd,khd->qhk", q.double(), k.double().repeat_interleave(group, 1)) * q.shape[2] ** -0.5
    sees = rule(positions[:, None], torch.arange(k.shape[0])[None])
    return torch.logsumexp(scores.masked_fill(~sees[:, None], float("-inf")), -1)


def assert_lse(actual, expected):
    """Rows without keys are -inf in both."""
    has_keys = torch.isfinite(expected)
    assert (actual[~has_keys] == float("-inf")).all()
    assert_near(actual[has_keys], expected[has_keys], 1e-6)


class KeyCounts:
    """A problem in which sequences have the first `keys` of their keys, or none."""

    def __init__(self, dtype, keys=(5, 0, 9, 2)):
        self.problem = AttentionProblem(cached=(5, 6, 11, 2), new=(3, 2, 1, 20), head_dim=16, dtype=dtype)
        self.keys = keys
        # What lies behind is nobody's.
        pool, size = self.problem.pool, self.problem.page_size
        for sequence, count in enumerate(keys):
            for token in range(count, self.problem.totals[sequence]):
                pool.blocks[pool.table[sequence][token // size], :, LAYER, token % size] = float("nan")

    def quire(self, **arguments):
        lengths = torch.tensor(self.keys, dtype=torch.uint32)
        return self.problem.quire(key_lengths=lengths, **arguments)

    def by_torch(self, function, *arguments):
        parts = []
        for sequence, count in enumerate(self.keys):
            positions = torch.arange(self.problem.new[sequence]) + self.problem.cached[sequence]
            sides = [side[sequence][:count] for side in (self.problem.k, self.problem.v)]
            parts.append(function(self.problem.q[sequence], *sides, *arguments, positions))
        return torch.cat(parts)


def assert_attends(batch, sees, dtype):
    """The batch by Quire, no worse than by torch in the same dtype."""
    out, lse = batch.quire(mask=sees.mask, return_lse=True)
    truth = batch.by_torch(lambda q, k, v, p: attend(q, k, v, sees.rule, F64, p))
    assert_no_worse(out, batch.by_torch(lambda q, k, v, p: attend(q, k, v, sees.rule, dtype, p)), truth)
    if dtype == F32:
        assert_lse(lse, batch.by_torch(lambda q, k, v, p: lse_of(q, k, sees.rule, p)))


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", ["full", "causal", "window_causal"])
def test_key_lengths(name, dtype):
    assert_attends(KeyCounts(dtype), visibility.VISIBILITIES[name](), dtype)


def test_a_sequence_without_keys_is_its_sink():
    sinks = torch.tensor([0.0, 3.0, -20.0, 1.5])
    out, lse = KeyCounts(F32).quire(mask=quire.full(), sinks=sinks, return_lse=True)
    assert (out[3:5] == 0).all()
    assert_near(lse[3:5], sinks.expand(2, 4), 1e-6)


def test_context_and_new_tokens_apart_merge_to_the_whole():
    """What an engine does with the keys of other ranks: the context by key_lengths, the new tokens without a cache."""
    problem = AttentionProblem(cached=(5, 0, 11, 2), new=(3, 7, 1, 4))
    whole, whole_lse = problem.quire(return_lse=True)
    context = problem.quire(
        mask=quire.full(), key_lengths=torch.tensor(problem.cached, dtype=torch.int32), return_lse=True
    )
    k, v = (
        torch.cat([side[new_from:] for side, new_from in zip(sides, problem.cached)])
        for sides in (problem.k, problem.v)
    )
    new = quire.flash_attention(
        torch.cat(problem.q), problem.row_offsets, k=k, v=v, key_offsets=problem.row_offsets, return_lse=True
    )
    merged, lse = quire.merge_states(*(torch.stack(parts) for parts in zip(context, new)), return_lse=True)
    assert_near(merged, whole, 1e-6)
    assert_near(lse, whole_lse, 1e-6)


QUERIES, KEYS = (3, 7, 1, 0, 20), (8, 7, 12, 4, 2)


class Ragged:
    def __init__(self, dtype=F32, head_dim=16, value_dim=16, kv_heads=2):
        generator = seeded(3)

        def normal(counts, heads, width):
            return [torch.randn(count, heads, width, generator=generator).to(dtype) for count in counts]

        self.q, self.k = normal(QUERIES, 4, head_dim), normal(KEYS, kv_heads, head_dim)
        self.v = normal(KEYS, kv_heads, value_dim)

    def quire(self, **arguments):
        q, k, v = (torch.cat(parts) for parts in (self.q, self.k, self.v))
        return quire.flash_attention(q, offsets_of(QUERIES), k=k, v=v, key_offsets=offsets_of(KEYS), **arguments)

    def by_torch(self, function):
        parts = []
        for q, k, v in zip(self.q, self.k, self.v):
            parts.append(function(q, k, v, torch.arange(len(q)) + len(k) - len(q)))
        return torch.cat(parts)


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", ["full", "causal", "window_causal"])
def test_ragged_keys_are_aligned_at_the_end(name, dtype):
    assert_attends(Ragged(dtype), visibility.VISIBILITIES[name](), dtype)


@pytest.mark.parametrize(("head_dim", "value_dim"), [(24, 16), (16, 24), (192, 128)])
def test_values_of_another_width(head_dim, value_dim):
    batch, sees = Ragged(head_dim=head_dim, value_dim=value_dim, kv_heads=4), visibility.causal()
    out = batch.quire()
    assert out.shape[-1] == value_dim
    assert_no_worse(
        out,
        batch.by_torch(lambda q, k, v, p: attend(q, k, v, sees.rule, F32, p)),
        batch.by_torch(lambda q, k, v, p: attend(q, k, v, sees.rule, F64, p)),
    )


def test_ragged_keys_give_the_bits_of_pages():
    problem = AttentionProblem(cached=(5, 0, 11, 2), new=(3, 7, 1, 0))
    k, v = (torch.cat(sides) for sides in (problem.k, problem.v))
    ragged = quire.flash_attention(
        torch.cat(problem.q), problem.row_offsets, k=k, v=v, key_offsets=offsets_of(problem.totals)
    )
    assert_same_bits(ragged, problem.quire())


def test_strided_keys_of_one_buffer():
    """q, k and v as views of the one result of a fused projection."""
    rows = torch.randn(9, 4 + 2 + 2, 16, generator=seeded(4))
    q, k, v = rows.split((4, 2, 2), dim=1)
    offsets = offsets_of((4, 5))
    expected = quire.flash_attention(q.contiguous(), offsets, k=k.contiguous(), v=v.contiguous(), key_offsets=offsets)
    assert_same_bits(quire.flash_attention(q, offsets, k=k, v=v, key_offsets=offsets), expected)


def test_no_keys_at_all():
    q, none = torch.ones(3, 4, 16), torch.empty(0, 2, 16)
    out, lse = quire.flash_attention(
        q, offsets_of((2, 1)), k=none, v=none, key_offsets=offsets_of((0, 0)), mask="null", return_lse=True
    )
    assert (out == 0).all() and (lse == float("-inf")).all()


@pytest.mark.parametrize("ranks", [2, 3])
def test_draft_tokens_over_keys_that_were_dealt_to_ranks(ranks):
    """Context parallelism: rank r holds the keys r, r + ranks, … Each draft token sees those up to its own position,
    which no rule of local positions says; the states of all ranks are joined by their LSE."""
    problem = AttentionProblem(cached=(5, 0, 11, 1), new=(4, 2, 1, 4), head_dim=16)
    positions = torch.cat([problem.positions(sequence)[0][:, 0] for sequence in range(len(problem.new))])
    states, lses = [], []
    for rank in range(ranks):
        k, v = (torch.cat([rows[rank::ranks] for rows in side]) for side in (problem.k, problem.v))
        counts = [len(rows[rank::ranks]) for rows in problem.k]
        end = ((positions - rank + ranks) // ranks).to(torch.int32)
        out, lse = quire.flash_attention(
            torch.cat(problem.q),
            problem.row_offsets,
            k=k,
            v=v,
            key_offsets=offsets_of(counts),
            mask=quire.key_intervals(torch.zeros_like(end), end),
            return_lse=True,
        )
        states.append(out)
        lses.append(lse)
    joined = quire.merge_states(torch.stack(states), torch.stack(lses))
    rule = visibility.causal().rule
    assert_near(joined, problem.sdpa(rule, F64), 2e-6)
