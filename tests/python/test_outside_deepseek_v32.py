# SPDX-License-Identifier: Apache-2.0
"""Indexer and sparse latent attention through quire against transformers' DeepseekV32Attention, whole layer output.

transformers scores in the layer's dtype, quire in fp8. So its indexer gets the fp8 numbers times their scales as q and
k (see InjectedLayer), and then both must choose the same positions and give the same output. What quantization itself
costs is bounded in a test of its own, against the untouched layer.
"""

import copy

import pytest
import torch
from outside import seeded
from outside.agreement import assert_near, assert_no_worse, assert_same_bits
from outside.latent_chain import LAYER
from outside.page_pool import ORDERS, PagePool, offsets_of
from outside.ragged_batch import RaggedRun, capacities
from outside.sparse_chain import InjectedLayer, SparseChain
from outside.transformers_layer import MAX_POSITIONS, TransformersLayer, randomize
from torch.nn.functional import scaled_dot_product_attention
from transformers import DeepseekV32Config
from transformers.models.deepseek_v32.modeling_deepseek_v32 import DeepseekV32Attention, DeepseekV32RotaryEmbedding

import quire

F32, BF16, F64 = torch.float32, torch.bfloat16, torch.float64
HIDDEN = 64
TOP_K = 5
SCHEDULES = {
    "cold": [(21, 4, 13)],
    "chunked": [(12, 6, 3), (9, 1, 10), (5, 8, 6)],
    "decode": [(18, 7, 4), (1, 1, 1), (1, 1, 1), (1, 1, 1)],
    "mixed": [(16, 0, 9), (1, 12, 0), (4, 1, 1)],
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


def deepseek(**changes):
    sizes = dict(
        hidden_size=HIDDEN,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=48,
        kv_lora_rank=32,
        qk_nope_head_dim=24,
        qk_rope_head_dim=16,
        v_head_dim=20,
        index_n_heads=8,
        index_head_dim=32,
        index_topk=TOP_K,
        num_hidden_layers=1,
        max_position_embeddings=MAX_POSITIONS,
        attn_implementation="sdpa",
    )
    config = DeepseekV32Config(**(sizes | changes))
    attention = randomize(DeepseekV32Attention(config, layer_idx=0), seed=1, gain=1.5)
    return attention, DeepseekV32RotaryEmbedding(config)


def chosen_by_quire(indices, lengths, counts, top_k) -> list[set[int]]:
    """The sets, after the shape of each row is checked: min(top_k, bound) ascending positions, then -1."""
    positions = [n + i for n, c in zip(lengths, counts) for i in range(c)]
    rows = indices.tolist()
    for position, row in zip(positions, rows):
        valid = min(top_k, position + 1)
        assert row[:valid] == sorted(set(row[:valid])) and row[valid:] == [-1] * (top_k - valid)
        assert 0 <= row[0] and row[valid - 1] <= position
    return [{pick for pick in row if pick >= 0} for row in rows]


class KeyScores:
    """Scores by the definition, in f64, of every token against all keys of its sequence so far."""

    def __init__(self, batch):
        self.keys = [[] for _ in range(batch)]

    def add(self, q, k, weights, counts) -> list[torch.Tensor]:
        scores = []
        for sequence, rows in enumerate(torch.arange(q.shape[0]).split(counts)):
            self.keys[sequence].append(k[rows].double())
            keys = torch.cat(self.keys[sequence])
            dots = torch.relu(torch.einsum("thd,kd->thk", q[rows].double(), keys))
            scores += list(torch.einsum("thk,th->tk", dots, weights[rows].double()))
        return scores


def check_against_injected(schedule, pool=None, **changes):
    attention, rotary = deepseek(**changes)
    top_k = attention.indexer.index_topk
    run = RaggedRun(schedule, HIDDEN, seed=3)
    batch = len(run.states)
    chain = SparseChain(copy.deepcopy(attention), rotary, capacities(schedule), **(pool or {}))
    theirs = InjectedLayer(attention, rotary, batch, F32)
    exact = InjectedLayer(attention, rotary, batch, F64)
    all_scores = KeyScores(batch)
    pruned = 0
    for lengths, counts, parts in run.calls():
        actual, indexing = chain.run(lengths, counts, parts)
        ours = chosen_by_quire(indexing.indices, lengths, counts, top_k)
        rival, rival_sets = theirs.run_with(parts, indexing)
        truth, sets = exact.run_with(parts, indexing)
        scores = all_scores.add(indexing.q, indexing.k, indexing.weights, counts)
        positions = [n + i for n, c in zip(lengths, counts) for i in range(c)]
        alike = torch.ones(len(ours), dtype=torch.bool)
        for row, position in enumerate(positions):
            pruned += position + 1 > top_k
            assert_same_choice(ours[row], sets[row], scores[row], 1e-12)
            assert_same_choice(ours[row], rival_sets[row], scores[row], 1e-5)
            alike[row] = ours[row] == sets[row] == rival_sets[row]
        assert alike.float().mean() > 0.9
        assert_near(actual[alike], rival[alike], 1e-5)
        assert_no_worse(actual[alike], rival[alike], truth[alike])
    return pruned


def assert_same_choice(ours: set[int], theirs: set[int], scores: torch.Tensor, tolerance: float):
    """Equal sets, up to positions whose scores are as good as equal."""
    assert len(ours) == len(theirs)
    swapped_in, swapped_out = sorted(ours - theirs), sorted(theirs - ours)
    if swapped_in:
        gap = (scores[swapped_in].sort().values - scores[swapped_out].sort().values).abs().max().item()
        assert gap <= tolerance * scores.abs().max().item(), f"{swapped_in} instead of {swapped_out}: gap {gap:.3g}"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_layer(schedule):
    pruned = check_against_injected(SCHEDULES[schedule])
    assert pruned > 5, "the indexer had nothing to leave out"


@pytest.mark.parametrize(
    "changes",
    [
        dict(rope_parameters=YARN),
        dict(index_topk=1),
        dict(index_topk=12),
        dict(index_n_heads=16, index_head_dim=64),
        dict(qk_rope_head_dim=32, index_head_dim=32),
        dict(num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=64),
    ],
    ids=["yarn", "top_1", "top_12", "wide_index", "all_rope_index", "two_heads"],
)
def test_configurations(changes):
    check_against_injected(SCHEDULES["chunked"], **changes)


@pytest.mark.parametrize(("page_size", "index_page_size"), [(1, 16), (16, 1), (5, 3)])
def test_page_sizes(page_size, index_page_size):
    pool = dict(page_size=page_size, index_page_size=index_page_size)
    check_against_injected(SCHEDULES["mixed"], pool)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_layer_that_keeps_everything(schedule, dtype):
    """With top_k beyond every length nothing is left out: the untouched layer must agree."""
    attention, rotary = deepseek(index_topk=32)
    attention = attention.to(dtype)
    run = RaggedRun(SCHEDULES[schedule], HIDDEN, seed=3, dtype=dtype)
    batch = len(run.states)
    chain = SparseChain(copy.deepcopy(attention), rotary, capacities(run.schedule), dtype)
    rival = TransformersLayer(attention, rotary, batch, dtype)
    truth = TransformersLayer(attention, rotary, batch, F64, rope_dtype=dtype)
    for lengths, counts, parts in run.calls():
        actual, _ = chain.run(lengths, counts, parts)
        theirs, exact = rival.run(parts), truth.run(parts)
        if dtype == F32:
            assert_near(actual, theirs, 1e-5)
        assert_no_worse(actual, theirs, exact)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_fp8_costs_only_near_ties(schedule):
    """Against the untouched indexer: scores that move by ε swap only positions within 2 ε of the threshold."""
    attention, rotary = deepseek()
    run = RaggedRun(SCHEDULES[schedule], HIDDEN, seed=3)
    batch = len(run.states)
    chain = SparseChain(copy.deepcopy(attention), rotary, capacities(run.schedule))
    theirs = InjectedLayer(attention, rotary, batch, F32, injected=False)
    quantized, exact = KeyScores(batch), KeyScores(batch)
    kept = total = longest_k = 0
    for lengths, counts, parts in run.calls():
        indexing = chain.index(torch.cat(parts), lengths, counts)
        ours = chosen_by_quire(indexing.indices, lengths, counts, TOP_K)
        _, sets = theirs.run_with(parts, indexing)
        fp8_scores = quantized.add(indexing.q, indexing.k, indexing.weights, counts)
        scores = exact.add(indexing.exact_q, indexing.exact_k, indexing.weights, counts)
        positions = [n + i for n, c in zip(lengths, counts) for i in range(c)]
        longest_k = max(indexing.exact_k.norm(dim=-1).max().item(), longest_k)
        for row, position in enumerate(positions):
            visible = scores[row][: position + 1]
            moved = (fp8_scores[row][: position + 1] - visible).abs().max().item()
            lengths_of_q = indexing.exact_q[row].norm(dim=-1)
            assert moved <= 0.02 * (indexing.weights[row].abs() * lengths_of_q).sum().item() * longest_k
            threshold = visible.topk(min(TOP_K, position + 1)).values[-1].item()
            for pick in ours[row] ^ sets[row]:
                assert abs(visible[pick].item() - threshold) <= 2 * moved * 1.001
            kept += len(ours[row] & sets[row])
            total += len(ours[row])
    assert kept >= 0.9 * total


def test_page_order_does_not_change_a_bit():
    attention, rotary = deepseek()
    run = RaggedRun(SCHEDULES["mixed"], HIDDEN, seed=3)
    results = []
    for page_size, order in [(32, "identity"), *((3, order) for order in ORDERS)]:
        chain = SparseChain(attention, rotary, capacities(run.schedule), page_size=page_size, order=order)
        calls = [chain.run(*call) for call in run.calls()]
        results.append((torch.cat([out for out, _ in calls]), torch.cat([seen.indices for _, seen in calls])))
    for outputs, indices in results[1:]:
        assert_same_bits(outputs, results[0][0])
        assert_same_bits(indices, results[0][1])


def test_finished_rows_are_those_of_transformers():
    """rms_norm_key and rope on the pages. transformers keeps the even columns of the rope part before the odd."""
    attention, rotary = deepseek()
    run = RaggedRun(SCHEDULES["mixed"], HIDDEN, seed=3)
    chain = SparseChain(copy.deepcopy(attention), rotary, capacities(run.schedule))
    theirs = TransformersLayer(attention, rotary, len(run.states))
    for lengths, counts, parts in run.calls():
        chain.run(lengths, counts, parts)
        theirs.run(parts)
    half = chain.rope // 2
    for sequence, length in enumerate(capacities(run.schedule)):
        latent, rope = chain.pool.read(LAYER, 0, sequence, length)[:, 0].split([chain.latent, chain.rope], dim=-1)
        layer = theirs.caches[sequence].layers[0]
        if layer.keys.shape[1] != 1:
            pytest.skip("this transformers caches the keys and values of every head, not the latents")
        assert_near(latent, layer.keys[0, 0], 2e-6)
        assert_near(rope[:, 0::2], layer.values[0, 0, :, :half], 2e-6)
        assert_near(rope[:, 1::2], layer.values[0, 0, :, half:], 2e-6)


def test_index_rows_are_torch_fp8():
    """The bytes and scales in the pages are those of a torch cast, whichever of the two ways they got there.

    store_index_keys has not torch's order of sums, so that a code near the middle between two may be the other one.
    """
    attention, rotary = deepseek()
    x = RaggedRun([(11,)], HIDDEN, seed=3).states[0]
    chain = SparseChain(attention, rotary, [11])
    seen = chain.index(x, [0], [11])
    scale = seen.exact_k.abs().amax(-1, keepdim=True) / 448
    quire.store(seen.exact_k[:, None], offsets_of([11]), chain.index_pool.cache([0]), 1 - LAYER)
    rows, scales = chain.index_pool.read(1 - LAYER, 0, 0, 11), chain.index_pool.read_scales(1 - LAYER, 0, 0, 11)
    assert_near(scales[:, 0], scale, 1e-7)
    assert_same_bits(rows[:, 0], (seen.exact_k / scales[:, 0]).to(torch.float8_e4m3fn))
    fused, fused_scales = chain.index_pool.read(LAYER, 0, 0, 11), chain.index_pool.read_scales(LAYER, 0, 0, 11)
    assert_near(fused_scales, scales, 1e-6)
    assert (fused.float() != rows.float()).float().mean() < 0.01
    assert ((fused.float() - rows.float()).abs() <= 0.126 * rows.float().abs()).all()  # a step at most


@pytest.mark.parametrize("mask", ["causal", "full"])
@pytest.mark.parametrize("top_k", [1, 4, 16, 40])
def test_indexer_against_torch_sort(top_k, mask):
    """Exact ties (equal key rows, scores that are 0) go to the lowest position, as in a stable sort."""
    generator = seeded(top_k)
    lengths, counts, heads, dim = [9, 0, 20], [4, 12, 1], 4, 16
    pool = PagePool([13, 12, 21], dim, is_mla=True, dtype=torch.float8_e4m3fn, scale_slots=1)
    q = torch.randn(sum(counts), heads, dim, generator=generator).to(torch.float8_e4m3fn)
    q_scale = torch.randn(sum(counts), heads, generator=generator)
    expected, first = [], 0
    for sequence, (length, count) in enumerate(zip(lengths, counts)):
        total = length + count
        distinct = torch.randn(6, 1, dim, generator=generator).to(torch.float8_e4m3fn)
        choice = torch.randint(6, (total,), generator=generator)
        scales = torch.rand(6, 1, 1, generator=generator)[choice] + 0.5
        pool.write(LAYER, 0, sequence, 0, distinct.double()[choice], scales)
        dots = torch.relu(torch.einsum("thd,kd->thk", q[first : first + count].double(), distinct.double()[choice, 0]))
        scores = torch.einsum("thk,th->tk", dots, q_scale[first : first + count].double()) * scales[:, 0, 0]
        for i in range(count):
            bound = length + i + 1 if mask == "causal" else total
            picks = scores[i, :bound].sort(descending=True, stable=True).indices[:top_k].sort().values.tolist()
            expected.append(picks + [-1] * (top_k - len(picks)))
        first += count
    actual = quire.mla_indexer(q, q_scale, offsets_of(counts), pool.cache(lengths), LAYER, top_k=top_k, mask=mask)
    assert actual.tolist() == expected


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("with_sinks", [False, True], ids=["plain", "sinks"])
def test_sparse_mla_against_sdpa(with_sinks, dtype):
    """Holes, duplicates, positions past the end and topk_lengths, against torch's attention over the rows they name."""
    generator = seeded(7)
    latent, rope, heads, scale = 32, 16, 4, 0.17
    lengths, counts = [7, 0], [2, 3]
    indices = torch.tensor(
        [[0, -1, 5, 7, 3, -1], [8, 8, 2, -1, -1, 1], [0, -1, -1, -1, -1, -1], [1, 0, 2, 90, -1, 0], [-1] * 6],
        dtype=torch.int32,
    )
    topk_lengths = torch.tensor([6, 5, 1, 6, 6], dtype=torch.int32)
    sinks = torch.tensor([0.0, 2.0, -5.0, 0.5]) if with_sinks else None
    q = torch.randn(5, heads, latent + rope, generator=generator).to(dtype)
    rows = [torch.randn(n + c, 1, latent + rope, generator=generator).to(dtype) for n, c in zip(lengths, counts)]
    pool = PagePool([9, 3], latent + rope, is_mla=True, dtype=dtype)
    for sequence, values in enumerate(rows):
        pool.write(LAYER, 0, sequence, 0, values)
    actual, lse = quire.sparse_mla(
        q,
        offsets_of(counts),
        pool.cache(lengths),
        LAYER,
        indices=indices,
        scale=scale,
        topk_lengths=topk_lengths,
        sinks=sinks,
        latent_dim=latent,
        return_lse=True,
    )

    def attend(token, as_dtype):
        values = rows[0 if token < 2 else 1]
        picks = [p for p in indices[token, : topk_lengths[token]].tolist() if 0 <= p < values.shape[0]]
        keys = values[picks, 0].to(as_dtype)
        bias = torch.zeros(heads, 1, len(picks), dtype=as_dtype)
        if with_sinks:
            keys = torch.cat((keys, keys.new_zeros(1, latent + rope)))
            bias = torch.cat((bias, sinks.to(as_dtype)[:, None, None]), dim=-1)
        if not len(keys):
            return q.new_zeros(heads, latent, dtype=as_dtype), q.new_full((heads,), float("-inf"), dtype=as_dtype)
        query = q[token].to(as_dtype)[:, None]
        keys = keys.expand(heads, -1, -1)
        out = scaled_dot_product_attention(query, keys, keys[..., :latent], attn_mask=bias, scale=scale)
        return out[:, 0], torch.logsumexp(query @ keys.transpose(1, 2) * scale + bias, dim=-1)[:, 0]

    truth, rival = ([attend(token, as_dtype) for token in range(5)] for as_dtype in (F64, dtype))
    assert_no_worse(actual, torch.stack([out for out, _ in rival]), torch.stack([out for out, _ in truth]))
    expected_lse = torch.stack([lse for _, lse in truth])
    visible = torch.isfinite(expected_lse)
    assert_near(lse[visible], expected_lse[visible], 1e-6)
    assert (lse[~visible] == float("-inf")).all() and (~visible).sum() == (0 if with_sinks else heads)
