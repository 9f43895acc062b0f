# SPDX-License-Identifier: Apache-2.0
"""Block-sparse attention through quire against transformers' MiniMaxM3VLAttention, which masks all other keys.

transformers sees each sequence whole and without a cache; quire gets ragged batches in pieces, over shuffled pages.
What goes into the attention of a layer, and what comes out of it, is recorded on its way.
"""

from dataclasses import dataclass

import pytest
import torch
from outside import seeded
from outside.agreement import assert_no_worse
from outside.page_pool import PagePool, offsets_of
from outside.ragged_batch import RaggedRun, capacities
from outside.transformers_layer import randomize

import quire

modeling = pytest.importorskip(
    "transformers.models.minimax_m3_vl.modeling_minimax_m3_vl", reason="this transformers has no MiniMax-M3"
)
from transformers.models.minimax_m3_vl import MiniMaxM3VLTextConfig  # noqa: E402

F32, F64 = torch.float32, torch.float64
HIDDEN, HEADS, KV_HEADS, WIDTH, INDEX_WIDTH = 48, 8, 2, 16, 16
LAYER = 1
# New tokens of three sequences, call by call.
SCHEDULES = {
    "cold": [(37, 1, 20)],
    "pieces": [(17, 3, 8), (1, 0, 1), (7, 14, 0), (3, 1, 12), (9, 1, 1)],
    "decode": [(30, 1, 11)] + [(1, 1, 1)] * 7,
}


def minimax(block_size, top_blocks, local_blocks, **changes):
    sizes = dict(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=WIDTH,
        num_hidden_layers=1,
        layer_types=["minimax_m3_sparse"],
        index_n_heads=KV_HEADS,
        index_head_dim=INDEX_WIDTH,
        index_block_size=block_size,
        index_topk_blocks=top_blocks,
        index_local_blocks=local_blocks,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    config = MiniMaxM3VLTextConfig(**(sizes | changes))
    attention = randomize(modeling.MiniMaxM3VLAttention(config, layer_idx=0), seed=5, gain=1.5)
    return attention, modeling.MiniMaxM3VLRotaryEmbedding(config)


@dataclass
class Recorded:
    """Of one sequence, tokens first."""

    q: torch.Tensor  # [tokens, heads, width]
    k: torch.Tensor  # [tokens, kv_heads, width]
    v: torch.Tensor
    index_q: torch.Tensor  # [tokens, kv_heads, index width]
    index_k: torch.Tensor  # [tokens, 1, index width]
    blocks: torch.Tensor  # [tokens, kv_heads, blocks]
    out: torch.Tensor  # [tokens, heads, width]


def record(attention, rotary, states, dtype, monkeypatch) -> Recorded:
    """A sequence through the layer."""
    seen = []
    rotated = []
    attend, rotate = modeling.eager_attention_forward, modeling.apply_rotary_pos_emb

    def attend_and_record(module, q, k, v, mask, **options):
        out = attend(module, q, k, v, mask, **options)
        rows = (rows[0].transpose(0, 1) for rows in (q, k, v))
        seen.append((*rows, options["block_indices"], out[0]))
        return out

    def rotate_and_record(*operands, **options):
        rotated.append(rotate(*operands, **options))
        return rotated[-1]

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(modeling, "eager_attention_forward", attend_and_record)
        patch.setattr(modeling, "apply_rotary_pos_emb", rotate_and_record)
        positions = torch.arange(len(states))[None]
        turns = tuple(part.to(dtype) for part in rotary(torch.zeros(1), positions))
        attention.to(dtype)(states[None].to(dtype), turns, None, None, position_ids=positions)
    [(q, k, v, blocks, out)] = seen
    _, (index_q, index_k) = rotated  # the indexer's come second
    return Recorded(q, k, v, index_q[0].transpose(0, 1), index_k[0].transpose(0, 1), blocks[0].transpose(0, 1), out[0])


def widened(blocks, slots):
    """The lists of a sequence beside those of longer ones."""
    return torch.nn.functional.pad(blocks, (0, slots - blocks.shape[-1]), value=-1)


def recorded_run(schedule, settings, monkeypatch, **changes):
    attention, rotary = minimax(*settings, **changes)
    run = RaggedRun(schedule, HIDDEN, seed=11)
    ours = [record(attention, rotary, states, F32, monkeypatch) for states in run.states]
    truth = [record(attention, rotary, states, F64, monkeypatch) for states in run.states]
    return run, ours, truth


def part_of(sequences, field, lengths, counts):
    return torch.cat([getattr(s, field)[n : n + c] for s, n, c in zip(sequences, lengths, counts)])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("settings", [(4, 3, 1), (8, 2, 1), (5, 3, 2), (4, 64, 0), (1, 9, 1)])
def test_attention_over_the_blocks_that_the_layer_chose(schedule, settings, monkeypatch):
    schedule = SCHEDULES[schedule]
    run, given, truth = recorded_run(schedule, settings, monkeypatch)
    pool = PagePool(capacities(schedule), WIDTH, kv_heads=KV_HEADS, page_size=4)
    slots = max(s.blocks.shape[-1] for s in given)
    for s in (*given, *truth):
        s.blocks = widened(s.blocks, slots)
    for lengths, counts, _ in run.calls():
        for b, (s, n, c) in enumerate(zip(given, lengths, counts)):
            pool.write(LAYER, 0, b, n, s.k[n : n + c])
            pool.write(LAYER, 1, b, n, s.v[n : n + c])
        out = quire.flash_attention(
            part_of(given, "q", lengths, counts).contiguous(),
            offsets_of(counts),
            pool.cache(lengths),
            LAYER,
            key_blocks=part_of(given, "blocks", lengths, counts).to(torch.int32).contiguous(),
            key_block_size=settings[0],
        )
        same_choice = torch.equal(
            part_of(given, "blocks", lengths, counts).sort()[0], part_of(truth, "blocks", lengths, counts).sort()[0]
        )
        assert same_choice, "another seed: the layer itself chooses otherwise in f64"
        assert_no_worse(out, part_of(given, "out", lengths, counts), part_of(truth, "out", lengths, counts))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("settings", [(4, 3, 1), (8, 2, 1), (5, 3, 2), (4, 64, 0), (1, 9, 1)])
def test_the_blocks_that_quire_chooses_are_the_layers(schedule, settings, monkeypatch):
    """And attention over them is the layer's, from the index keys of a cache of their own on."""
    block_size, top_blocks, local_blocks = settings
    schedule = SCHEDULES[schedule]
    run, given, truth = recorded_run(schedule, settings, monkeypatch)
    pool = PagePool(capacities(schedule), WIDTH, kv_heads=KV_HEADS, page_size=4)
    index_pool = PagePool(capacities(schedule), INDEX_WIDTH, is_mla=True, page_size=8)
    for lengths, counts, _ in run.calls():
        for b, (s, n, c) in enumerate(zip(given, lengths, counts)):
            pool.write(LAYER, 0, b, n, s.k[n : n + c])
            pool.write(LAYER, 1, b, n, s.v[n : n + c])
            index_pool.write(LAYER, 0, b, n, s.index_k[n : n + c])
        blocks = quire.select_blocks(
            part_of(given, "index_q", lengths, counts).contiguous(),
            offsets_of(counts),
            index_pool.cache(lengths),
            LAYER,
            max_blocks=top_blocks,
            block_size=block_size,
            local_blocks=local_blocks,
        )
        theirs = [row for s, n, c in zip(given, lengths, counts) for row in s.blocks[n : n + c].flatten(0, 1).tolist()]
        for ours, row in zip(blocks.flatten(0, 1).tolist(), theirs):
            chosen = sorted(block for block in row if block >= 0)
            assert ours == chosen + [-1] * (top_blocks - len(chosen))
        out = quire.flash_attention(
            part_of(given, "q", lengths, counts).contiguous(),
            offsets_of(counts),
            pool.cache(lengths),
            LAYER,
            key_blocks=blocks,
            key_block_size=block_size,
        )
        assert_no_worse(out, part_of(given, "out", lengths, counts), part_of(truth, "out", lengths, counts))


def test_a_list_of_all_blocks_is_dense_attention():
    q = torch.randn(9, HEADS, WIDTH, generator=seeded(2))
    k, v = torch.randn(2, 30, KV_HEADS, WIDTH, generator=seeded(3))
    offsets = {"row_offsets": offsets_of([9]), "k": k, "v": v, "key_offsets": offsets_of([30])}
    dense = quire.flash_attention(q, **offsets)
    lists = torch.randperm(4, generator=seeded(4)).to(torch.int32).expand(9, KV_HEADS, 4).contiguous()
    sparse = quire.flash_attention(q, **offsets, key_blocks=lists, key_block_size=8)
    torch.testing.assert_close(sparse, dense, rtol=1e-6, atol=1e-6)
