# SPDX-License-Identifier: Apache-2.0
"""A Llama-style layer through quire against the attention modules of transformers, whole layer output."""

import copy

import pytest
import torch
from outside import seeded
from outside.agreement import assert_near, assert_no_worse, assert_same_bits
from outside.llama_chain import LlamaChain
from outside.page_pool import ORDERS
from outside.ragged_batch import SCHEDULES, RaggedRun, capacities
from outside.transformers_layer import MAX_POSITIONS, TransformersLayer, randomize
from transformers import LlamaConfig, LlamaModel, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3RotaryEmbedding

import quire

F32, BF16, F64 = torch.float32, torch.bfloat16, torch.float64
HIDDEN = 64
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def tiny(config_class, **changes):
    sizes = dict(
        hidden_size=HIDDEN,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=96,
        num_hidden_layers=2,
        vocab_size=50,
        max_position_embeddings=MAX_POSITIONS,
        attn_implementation="sdpa",
    )
    return config_class(**(sizes | changes))


def llama(**changes):
    config = tiny(LlamaConfig, **changes)
    return randomize(LlamaAttention(config, layer_idx=0), seed=1, gain=1.5), LlamaRotaryEmbedding(config)


def qwen3(**changes):
    config = tiny(Qwen3Config, **changes)
    return randomize(Qwen3Attention(config, layer_idx=0), seed=2, gain=1.5), Qwen3RotaryEmbedding(config)


def check(attention, rotary, schedule, dtype=F32, window=None, **pool):
    """Every call of the schedule: within 1e-5 of transformers in f32, in bf16 no worse than transformers itself."""
    attention = attention.to(dtype)
    run = RaggedRun(schedule, HIDDEN, seed=3, dtype=dtype)
    batch = len(run.states)
    mask = "causal" if window is None else quire.causal() & quire.sliding_window(window)
    chain = LlamaChain(copy.deepcopy(attention), rotary, capacities(schedule), dtype, mask, **pool)
    rival = TransformersLayer(attention, rotary, batch, dtype)
    truth = TransformersLayer(attention, rotary, batch, F64, rope_dtype=dtype)
    rival.window = truth.window = window
    for lengths, counts, parts in run.calls():
        actual = chain.run(lengths, counts, parts)
        theirs, exact = rival.run(parts), truth.run(parts)
        if dtype == F32:
            assert_near(actual, theirs, 1e-5)
        assert_no_worse(actual, theirs, exact)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_llama_attention(schedule, dtype):
    check(*llama(), SCHEDULES[schedule], dtype)


@pytest.mark.parametrize(
    "changes",
    [
        dict(num_attention_heads=4, num_key_value_heads=4),
        dict(num_attention_heads=8, num_key_value_heads=1, head_dim=8),
        dict(attention_bias=True),
        dict(rope_parameters=LLAMA3_ROPE),
        dict(rope_parameters={"rope_type": "default", "rope_theta": 500.0}, head_dim=32),
    ],
    ids=["mha", "mqa", "bias", "llama3_rope", "head_dim_32"],
)
def test_llama_configurations(changes):
    check(*llama(**changes), SCHEDULES["chunked"])


@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_llama_page_sizes(page_size):
    check(*llama(), SCHEDULES["mixed"], page_size=page_size)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_qwen3_attention(schedule, dtype):
    """RMSNorm of q and of the cached keys, per head, before rope."""
    check(*qwen3(), SCHEDULES[schedule], dtype)


@pytest.mark.parametrize("schedule", ["chunked", "decode"])
def test_qwen3_sliding_window(schedule):
    attention, rotary = qwen3()
    check(attention, rotary, SCHEDULES[schedule], window=4)


def test_page_order_does_not_change_a_bit():
    """The whole chain, the rows in the pages included."""
    attention, rotary = llama()
    run = RaggedRun(SCHEDULES["mixed"], HIDDEN, seed=3)
    results = []
    for page_size, order in [(16, "identity"), *((2, order) for order in ORDERS)]:
        chain = LlamaChain(attention, rotary, capacities(run.schedule), page_size=page_size, order=order)
        outputs = [chain.run(*call) for call in run.calls()]
        rows = [chain.pool.read(1, side, s, n) for side in (0, 1) for s, n in enumerate(capacities(run.schedule))]
        results.append((torch.cat(outputs), torch.cat(rows)))
    for outputs, rows in results[1:]:
        assert_same_bits(outputs, results[0][0])
        assert_same_bits(rows, results[0][1])


def test_cached_rows_are_those_of_transformers():
    attention, rotary = qwen3()
    run = RaggedRun(SCHEDULES["chunked"], HIDDEN, seed=3)
    chain = LlamaChain(copy.deepcopy(attention), rotary, capacities(run.schedule))
    theirs = TransformersLayer(attention, rotary, len(run.states))
    for lengths, counts, parts in run.calls():
        chain.run(lengths, counts, parts)
        theirs.run(parts)
    for sequence, length in enumerate(capacities(run.schedule)):
        layer = theirs.caches[sequence].layers[0]
        assert_near(chain.pool.read(1, 0, sequence, length), layer.keys[0].transpose(0, 1), 1e-6)
        assert_near(chain.pool.read(1, 1, sequence, length), layer.values[0].transpose(0, 1), 1e-6)


class QuireAttention(torch.nn.Module):
    """A LlamaChain in the place of a transformers attention module, for one sequence."""

    def __init__(self, attention, rotary, layer):
        super().__init__()
        self.chain = LlamaChain(attention, rotary, [MAX_POSITIONS], layer=layer, page_size=8)
        self.length = 0

    def forward(self, hidden_states, **_):
        count = hidden_states.shape[1]
        out = self.chain.run([self.length], [count], [hidden_states[0]])
        self.length += count
        return out[None], None


@torch.no_grad()
def test_llama_model_with_quire_inside():
    """Two decoder layers, norms and MLPs of transformers, attention and cache of quire: prompt, then decode."""
    model = randomize(LlamaModel(tiny(LlamaConfig)), seed=4)
    ours = copy.deepcopy(model)
    for index, layer in enumerate(ours.layers):
        layer.self_attn = QuireAttention(layer.self_attn, ours.rotary_emb, index)
    tokens = torch.randint(50, (1, 14), generator=seeded(5))
    cache = None
    for first, last in [(0, 7), (7, 11), (11, 12), (12, 13), (13, 14)]:
        new, positions = tokens[:, first:last], torch.arange(first, last)[None]
        theirs = model(new, position_ids=positions, past_key_values=cache, use_cache=True)
        cache = theirs.past_key_values
        actual = ours(new, position_ids=positions, use_cache=False)
        assert_near(actual.last_hidden_state, theirs.last_hidden_state, 1e-5)
