# SPDX-License-Identifier: Apache-2.0
"""Latent attention through quire against transformers' DeepseekV3Attention, whole layer output."""

import copy

import pytest
import torch
from outside.agreement import assert_near, assert_no_worse, assert_same_bits
from outside.fp8_linear import Fp8Linear
from outside.latent_chain import LAYER, WAYS, LatentChain
from outside.page_pool import ORDERS
from outside.ragged_batch import SCHEDULES, RaggedRun, capacities
from outside.transformers_layer import MAX_POSITIONS, TransformersLayer, randomize
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

F32, BF16, F64 = torch.float32, torch.bfloat16, torch.float64
HIDDEN = 64
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 0.7,
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
        num_hidden_layers=1,
        max_position_embeddings=MAX_POSITIONS,
        attn_implementation="sdpa",
    )
    config = DeepseekV3Config(**(sizes | changes))
    attention = randomize(DeepseekV3Attention(config, layer_idx=0), seed=1, gain=1.5)
    return attention, DeepseekV3RotaryEmbedding(config)


class Contest:
    """quire's chain beside transformers in the same dtype and in fp64, call by call."""

    def __init__(self, schedule, dtype=F32, seed=3, buffer_tokens=1024, pool=None, **changes):
        attention, rotary = deepseek(**changes)
        attention = attention.to(dtype)
        self.run = RaggedRun(schedule, HIDDEN, seed=seed, dtype=dtype)
        batch = len(self.run.states)
        self.dtype = dtype
        self.chain = LatentChain(
            copy.deepcopy(attention), rotary, capacities(schedule), dtype, buffer_tokens, **(pool or {})
        )
        self.rival = TransformersLayer(attention, rotary, batch, dtype)
        self.truth = TransformersLayer(attention, rotary, batch, F64, rope_dtype=dtype)

    def check(self, way, decode_after=None):
        """Calls from number `decode_after` on go through mla_decode, the others through mla_prefill."""
        for number, (lengths, counts, parts) in enumerate(self.run.calls()):
            decodes = decode_after is not None and number >= decode_after
            way_now = "finished" if way == "absorbed" and not decodes else way
            attend = self.chain.decode if decodes else self.chain.prefill
            actual = attend(lengths, counts, parts, way_now)
            theirs, exact = self.rival.run(parts), self.truth.run(parts)
            if self.dtype == F32:
                assert_near(actual, theirs, 1e-5)
            assert_no_worse(actual, theirs, exact)

    def use_fp8_weights(self):
        """Replaces kv_b_proj on all sides."""
        projection = Fp8Linear(self.chain.kv_b_proj)
        self.chain.kv_b_proj, self.chain.kv_b_proj_scale = projection.bytes, projection.scale
        self.rival.attention.kv_b_proj = self.truth.attention.kv_b_proj = projection


def changes_for(way):
    return {"q_lora_rank": None} if way == "fused" else {}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_prefill(schedule, way):
    Contest(SCHEDULES[schedule], **changes_for(way)).check(way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("schedule", ["cold", "chunked", "decode"])
def test_prefill_bf16(schedule, way):
    Contest(SCHEDULES[schedule], BF16, **changes_for(way)).check(way)


@pytest.mark.parametrize("schedule", ["cold", "chunked", "mixed"])
@pytest.mark.parametrize("buffer_tokens", [4, 8, 12, 20, 32])
def test_prefill_in_chunks(buffer_tokens, schedule):
    """Small buffers cut the keys into many chunks, whose attentions are merged by LSE."""
    Contest(SCHEDULES[schedule], buffer_tokens=buffer_tokens).check("stored")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("decode_tokens", [1, 3, 8])
def test_mixed_batches(decode_tokens, schedule):
    """Sequences of few new tokens are decoded by the same call that prefills the others."""
    contest = Contest(SCHEDULES[schedule], buffer_tokens=20)
    contest.chain.decode_tokens = decode_tokens
    contest.check("stored")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sizes", [(256, 24, 20), (128, 16, 32)], ids=["padded_blocks", "one_block"])
def test_prefill_with_fp8_weights(schedule, sizes):
    latent, nope, value = sizes
    contest = Contest(SCHEDULES[schedule], kv_lora_rank=latent, qk_nope_head_dim=nope, v_head_dim=value)
    contest.use_fp8_weights()
    contest.check("stored")


# A prompt, then a few calls of mla_decode.
DECODES = {
    "one_token": [(11, 4, 1), (1, 1, 1), (1, 1, 1)],
    "eight_tokens": [(5, 9, 2), (8, 8, 8)],
    "uneven": [(3, 12, 7), (2, 5, 8), (7, 1, 3)],
    "with_idle_sequences": [(4, 6, 0), (3, 0, 0), (0, 2, 4)],
    "cold": [(0, 0, 0), (6, 1, 8)],
}


@pytest.mark.parametrize("way", [*WAYS, "absorbed"])
@pytest.mark.parametrize("schedule", DECODES)
def test_decode(schedule, way):
    Contest(DECODES[schedule], **changes_for(way)).check(way, decode_after=1)


@pytest.mark.parametrize("way", ["stored", "given", "absorbed"])
@pytest.mark.parametrize("schedule", ["one_token", "uneven"])
def test_decode_bf16(schedule, way):
    Contest(DECODES[schedule], BF16).check(way, decode_after=1)


@pytest.mark.parametrize(
    "changes",
    [
        dict(rope_parameters=YARN),
        dict(v_head_dim=32, qk_nope_head_dim=16),
        dict(kv_lora_rank=64, qk_rope_head_dim=32),
        dict(num_attention_heads=2, num_key_value_heads=2),
    ],
    ids=["yarn", "wide_values", "wide_latent", "two_heads"],
)
@pytest.mark.parametrize("decode_after", [None, 1], ids=["prefill", "decode"])
def test_configurations(changes, decode_after):
    Contest(DECODES["uneven"], **changes).check("stored", decode_after)


@pytest.mark.parametrize("decode_after", [None, 1], ids=["prefill", "decode"])
def test_half_split_rope_is_the_callers(decode_after):
    Contest(DECODES["uneven"], rope_interleave=False).check("finished", decode_after)


@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("decode_after", [None, 1], ids=["prefill", "decode"])
def test_page_sizes(page_size, decode_after):
    Contest(DECODES["uneven"], pool=dict(page_size=page_size)).check("stored", decode_after)


@pytest.mark.parametrize("decode_after", [None, 1], ids=["prefill", "decode"])
def test_page_order_does_not_change_a_bit(decode_after):
    results = []
    for order in ORDERS:
        contest = Contest(DECODES["uneven"], pool=dict(page_size=3, order=order), buffer_tokens=16)
        outputs = []
        for number, (lengths, counts, parts) in enumerate(contest.run.calls()):
            decodes = decode_after is not None and number >= decode_after
            attend = contest.chain.decode if decodes else contest.chain.prefill
            outputs.append(attend(lengths, counts, parts, "stored"))
        results.append(torch.cat(outputs))
    for outputs in results[1:]:
        assert_same_bits(outputs, results[0])


@pytest.mark.parametrize("decode_after", [None, 1], ids=["prefill", "decode"])
@pytest.mark.parametrize("way", WAYS)
def test_finished_rows_are_those_of_transformers(way, decode_after):
    """Normalised latent, rotated rope part. transformers keeps the even columns of the rope part before the odd."""
    contest = Contest(DECODES["uneven"], **changes_for(way))
    contest.check(way, decode_after)
    half = contest.chain.rope // 2
    for sequence, length in enumerate(capacities(contest.run.schedule)):
        rows = contest.chain.pool.read(LAYER, 0, sequence, length)[:, 0]
        layer = contest.rival.caches[sequence].layers[0]
        latent, rope = rows.split([contest.chain.latent, contest.chain.rope], dim=-1)
        assert_near(latent, layer.keys[0, 0], 2e-6)
        assert_near(rope[:, 0::2], layer.values[0, 0, :, :half], 2e-6)
        assert_near(rope[:, 1::2], layer.values[0, 0, :, half:], 2e-6)


def test_prefill_rotates_q_in_place_and_only_its_rope_part():
    contest = Contest(SCHEDULES["cold"])
    chain = contest.chain
    lengths, counts, parts = next(contest.run.calls())
    chain.prefill(lengths, counts, parts, "stored")
    raw = chain.query(torch.cat(parts), counts)
    turned, _ = chain._finish(raw, torch.zeros(raw.shape[0], chain.latent + chain.rope), lengths, counts)
    assert_same_bits(chain.last_q[..., : chain.nope], raw[..., : chain.nope])
    assert_near(chain.last_q, turned, 1e-6)
    assert (chain.last_q != raw).any()
