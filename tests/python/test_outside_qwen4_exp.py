# SPDX-License-Identifier: Apache-2.0
"""Attention over the tokens that the indexer of transformers' Qwen4ExpTextAttention chose, through quire as blocks.

The indexer takes whole groups of tokens, which are blocks of a sequence, and the tokens behind the last whole group:
one more block, which the mask cuts. All KV heads share the list. transformers sees each sequence whole.
"""

from dataclasses import dataclass

import pytest
import torch
from outside.agreement import assert_no_worse
from outside.page_pool import PagePool, offsets_of
from outside.ragged_batch import RaggedRun, capacities
from outside.transformers_layer import randomize

import quire

modeling = pytest.importorskip(
    "transformers.models.qwen4_exp.modeling_qwen4_exp", reason="this transformers has no Qwen4-Exp"
)
from transformers.models.qwen4_exp import Qwen4ExpTextConfig  # noqa: E402

F32, F64 = torch.float32, torch.float64
HIDDEN, HEADS, KV_HEADS, WIDTH = 48, 6, 2, 16
LAYER = 1
# New tokens of three sequences, call by call.
SCHEDULES = {
    "cold": [(37, 1, 20)],
    "pieces": [(17, 3, 8), (1, 0, 1), (7, 14, 0), (3, 1, 12)],
    "decode": [(30, 1, 11)] + [(1, 1, 1)] * 5,
}


def qwen(group, budget):
    config = Qwen4ExpTextConfig(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=WIDTH,
        num_hidden_layers=1,
        layer_types=["indexed_attention"],
        indexer_n_heads=3,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=budget,
        indexer_compress_ratio=group,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    attention = randomize(modeling.Qwen4ExpTextAttention(config, layer_idx=0), seed=5, gain=1.5)
    return attention, modeling.Qwen4ExpTextRotaryEmbedding(config)


@dataclass
class Recorded:
    """Of one sequence, tokens first."""

    q: torch.Tensor  # [tokens, heads, width]
    k: torch.Tensor  # [tokens, kv_heads, width]
    v: torch.Tensor
    seen: torch.Tensor  # bool [tokens, keys]
    out: torch.Tensor  # [tokens, heads, width]


def record(attention, rotary, states, dtype, monkeypatch) -> Recorded:
    """A sequence through the layer."""
    recorded = []
    attend = modeling.eager_attention_forward

    def attend_and_record(module, q, k, v, mask, **options):
        out = attend(module, q, k, v, mask, **options)
        rows = (rows[0].transpose(0, 1) for rows in (q, k, v))
        recorded.append(Recorded(*rows, mask[0, 0] == 0, out[0][0]))
        return out

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(modeling, "eager_attention_forward", attend_and_record)
        positions = torch.arange(len(states))
        turns = tuple(part.to(dtype) for part in rotary(torch.zeros(1), positions[None]))
        hidden = positions[None, :] > positions[:, None]
        mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)
        attention.to(dtype)(states[None].to(dtype), turns, mask[None, None])
    [found] = recorded
    return found


def lists_of(seen, group, slots):
    """Blocks of the keys that are seen, i32 [tokens, kv_heads, slots]."""
    rows = []
    for row in seen:
        blocks = sorted({int(key) // group for key in row.nonzero()})
        rows.append(blocks + [-1] * (slots - len(blocks)))
    return torch.tensor(rows, dtype=torch.int32)[:, None].expand(-1, KV_HEADS, -1)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("group", "budget"), [(4, 12), (8, 16), (3, 3), (5, 60)])
def test_tokens_of_the_indexer_are_blocks(schedule, group, budget, monkeypatch):
    schedule = SCHEDULES[schedule]
    attention, rotary = qwen(group, budget)
    run = RaggedRun(schedule, HIDDEN, seed=11)
    given = [record(attention, rotary, states, F32, monkeypatch) for states in run.states]
    truth = [record(attention, rotary, states, F64, monkeypatch) for states in run.states]
    assert all(torch.equal(ours.seen, exact.seen) for ours, exact in zip(given, truth))
    left_out = sum(int((torch.ones_like(s.seen).tril() & ~s.seen).sum()) for s in given)
    assert (left_out > 0) == (budget < 37), "the indexer leaves keys out where there are more than its budget"
    lists = [lists_of(s.seen, group, budget // group + 1) for s in given]
    pool = PagePool(capacities(schedule), WIDTH, kv_heads=KV_HEADS, page_size=4)
    for lengths, counts, _ in run.calls():
        for b, (s, n, c) in enumerate(zip(given, lengths, counts)):
            pool.write(LAYER, 0, b, n, s.k[n : n + c])
            pool.write(LAYER, 1, b, n, s.v[n : n + c])

        def new(rows, lengths=lengths, counts=counts):
            return torch.cat([row[n : n + c] for row, n, c in zip(rows, lengths, counts)]).contiguous()

        out = quire.flash_attention(
            new([s.q for s in given]),
            offsets_of(counts),
            pool.cache(lengths),
            LAYER,
            key_blocks=new(lists),
            key_block_size=group,
        )
        assert_no_worse(out, new([s.out for s in given]), new([s.out for s in truth]))
