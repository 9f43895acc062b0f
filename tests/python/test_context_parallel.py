# SPDX-License-Identifier: Apache-2.0
"""Context-parallel decode in 2 and 4 processes of torch.distributed, against one process and against float64.

A result of several ranks rounds where one process does, and once more in the merge: the parts (one rounding each),
their weights, the products and sums of world_size terms, and the quotient. Parts and weights stand in convex
combinations, so the merge adds at most (world_size + 6) roundings of half an ulp of the largest value to an error of
the size of one process's.
"""

import doctest

import pytest
import torch
from outside import dealt_tokens, visibility
from outside.agreement import assert_same_bits
from outside.attention_problem import AttentionProblem
from outside.dealt_tokens import LatentProblem
from outside.ranks import Ranks

import quire
from quire.integrations import context_parallel
from quire.integrations.context_parallel import TokenSharding

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
HALF_ULP = {F32: 2.0**-24, F16: 2.0**-11, BF16: 2.0**-8}
SIZES = (2, 4)
# Of 4 ranks with 4 or 6 tokens in a row, most have no key of the second and third sequence.
CACHED = (5, 0, 2, 61, 30)
DECODING = {"cached": CACHED, "new": (1, 1, 1, 1, 1), "heads": 4, "kv_heads": 2}
DRAFTING = {"cached": CACHED, "new": (3, 7, 1, 0, 2), "heads": 8, "kv_heads": 2}
SINKS = torch.tensor([0.5, 3.0, -20.0, 1.5])


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    if torch.get_default_device().type == "cuda" and torch.cuda.device_count() < max(SIZES):
        pytest.skip(f"needs {max(SIZES)} GPUs")
    imported = ("outside.ranks", "outside.dealt_tokens", "outside.dealt_model")
    started = Ranks(tmp_path_factory.mktemp("ranks"), imported)
    yield started
    started.stop()


def sharded(ranks, size, function, *args):
    """What all ranks gave: the same bits on each."""
    first, *others = ranks.run(size, function, *args)
    for other in others:
        for mine, theirs in zip(first[:2], other[:2], strict=True):
            assert torch.equal(mine, theirs)
    return first


def assert_as_one(actual, one, exact, size, values):
    """`values` holds the largest value that is averaged."""
    assert exact.dtype == F64 and torch.isfinite(actual).all()
    error, error_of_one = ((x.double() - exact).abs().max().item() for x in (actual, one))
    limit = 2 * error_of_one + (size + 6) * HALF_ULP[actual.dtype] * values
    assert error <= limit, f"error {error:.3g} of {size} ranks, {error_of_one:.3g} of one, limit {limit:.3g}"


def assert_attends(result, size, settings, rule, one_arguments, **exact_arguments):
    problem = AttentionProblem(**settings)
    one, one_lse = problem.quire(return_lse=True, **one_arguments)
    exact, exact_lse = problem.by_hand(rule, F64, **exact_arguments)
    out, lse = result[:2]
    assert_as_one(out, one, exact, size, max(v.abs().max().item() for v in problem.v if len(v)))
    # log of a sum of world_size terms: each of them, their sum and the logarithm are rounded.
    assert_as_one(lse, one_lse, exact_lse, size, exact_lse.abs().max().item() + 1.0)


# Positions and ranks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("interleave", [1, 3, 16])
def test_every_position_has_one_place(world_size, interleave):
    """Counted one by one; ints and tensors give the same."""
    sharding = TokenSharding(world_size, interleave)
    length, held = 137, [[] for _ in range(world_size)]
    for position in range(length):
        owner = position // interleave % world_size
        assert sharding.owner(position) == owner
        assert sharding.local_index(position) == len(held[owner])
        held[owner].append(position)
        for rank in range(world_size):
            assert sharding.local_length(position + 1, rank) == len(held[rank])
    positions = torch.arange(length)
    assert sharding.owner(positions).tolist() == [sharding.owner(p) for p in range(length)]
    assert sharding.local_length(positions, 0).tolist() == [sharding.local_length(p, 0) for p in range(length)]
    for window in (1, 2, 7, 50):
        starts = range(length - window)
        counts = [sum(start <= p < start + window for p in held[0]) for start in starts]
        assert max(counts) == sharding.most_local(window)


def test_example():
    assert doctest.testmod(context_parallel) == (0, 3)


def test_ranks_are_balanced():
    """No two ranks differ by more than one chunk, however long a sequence is."""
    sharding = TokenSharding(4, 16)
    for length in range(1, 500, 7):
        local = [sharding.local_length(length, rank) for rank in range(4)]
        assert sum(local) == length and max(local) - min(local) <= 16


# Results --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("interleave", [1, 4, 6])
@pytest.mark.parametrize("settings", [DECODING, DRAFTING], ids=["decoding", "drafting"])
def test_attention(ranks, size, interleave, settings):
    result = sharded(ranks, size, dealt_tokens.attend, settings, interleave, {})
    assert_attends(result, size, settings, visibility.causal().rule, {})


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [BF16, F16], ids=["bf16", "f16"])
def test_dtypes(ranks, size, dtype):
    settings = DECODING | {"dtype": dtype}
    out, _, _ = sharded(ranks, size, dealt_tokens.attend, settings, 4, {})
    problem = AttentionProblem(**settings)
    exact, _ = problem.by_hand(visibility.causal().rule, F64)
    assert_as_one(out, problem.quire(), exact, size, max(v.abs().max().item() for v in problem.v))


@pytest.mark.parametrize("size", SIZES)
def test_rows_are_stored_by_their_owner_alone(ranks, size):
    interleave, totals = 4, [c + n for c, n in zip(DRAFTING["cached"], DRAFTING["new"])]
    answers = ranks.run(size, dealt_tokens.attend, DRAFTING, interleave, {})
    sharding = TokenSharding(size, interleave)
    written = [rows for _, _, rows in answers]
    assert written == [sum(sharding.local_length(total, rank) for total in totals) for rank in range(size)]
    assert sum(written) == sum(totals)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", ["attend", "attend_chunk"])
def test_sinks_count_once(ranks, size, method):
    function = getattr(dealt_tokens, method)
    result = sharded(ranks, size, function, DECODING, 4, {"sinks": SINKS, "softcap": 2.0})
    arguments = {"sinks": SINKS, "softcap": 2.0}
    assert_attends(result, size, DECODING, visibility.causal().rule, arguments, **arguments)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("window", [1, 3, 9, 40])
def test_windows(ranks, size, window):
    """Shorter and longer than what is in a row on one rank, and than what all ranks have in a row."""
    result = sharded(ranks, size, dealt_tokens.attend, DRAFTING, 4, {"window": window})

    def rule(q, k):
        return (k <= q) & (q - k < window)

    mask = quire.causal() & quire.sliding_window(window)
    assert_attends(result, size, DRAFTING, rule, {"mask": mask})


@pytest.mark.parametrize("size", SIZES)
def test_chunks_of_prompts(ranks, size):
    """New tokens see each other without pages; nothing of them is in the pages."""
    settings = {"cached": (40, 0, 17), "new": (30, 50, 1), "heads": 8, "kv_heads": 2}
    result = sharded(ranks, size, dealt_tokens.attend_chunk, settings, 6, {})
    assert_attends(result, size, settings, visibility.causal().rule, {})


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", ["attend", "attend_chunk"])
def test_by_heads(ranks, size, method):
    """An all-to-all gives each rank the bits of its own heads."""
    function = getattr(dealt_tokens, method)
    whole = sharded(ranks, size, function, DRAFTING, 4, {})
    parts = ranks.run(size, function, DRAFTING, 4, {"by_heads": True})
    for i in range(2):
        assert_same_bits(torch.cat([part[i] for part in parts], dim=1), whole[i])


def test_one_rank_is_one_process(ranks):
    out, lse, _ = sharded(ranks, 1, dealt_tokens.attend, DECODING, 4, {})
    one, one_lse = AttentionProblem(**DECODING).quire(return_lse=True)
    assert_same_bits(out, one)
    assert_same_bits(lse, one_lse)


@pytest.mark.parametrize("size", SIZES)
def test_padding_of_a_captured_graph(ranks, size):
    out, lse, _ = sharded(ranks, size, dealt_tokens.attend_padded, DECODING, 4, 3)
    expected = sharded(ranks, size, dealt_tokens.attend, DECODING, 4, {})
    assert_same_bits(out[:-3], expected[0])
    assert (out[-3:] == 0).all() and (lse[-3:] == float("-inf")).all()
    slots = torch.stack([answer[2] for answer in ranks.run(size, dealt_tokens.attend_padded, DECODING, 4, 3)])
    assert (slots[:, -3:] == -1).all() and ((slots[:, :-3] >= 0).sum(0) == 1).all()


@pytest.mark.parametrize("size", SIZES)
def test_quantized_pages(ranks, size):
    """Rows of e4m3 with a scale each: against one rank, whose rows are the same bytes."""
    one = ranks.run(1, dealt_tokens.attend_quantized, DECODING, 4)[0]
    out = ranks.run(size, dealt_tokens.attend_quantized, DECODING, 4)[0]
    problem = AttentionProblem(**DECODING)
    largest = max(v.abs().max().item() for v in problem.v)
    # Both are float32 averages of the same rows: each is off by what one process is off without quantization.
    exact, _ = problem.by_hand(visibility.causal().rule, F64)
    off = (problem.quire().double() - exact).abs().max().item()
    assert (out - one).abs().max() <= 3 * off + (size + 6) * HALF_ULP[F32] * largest
    assert (out.double() - exact).abs().max() > 1e-3  # they were quantized


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_absorbed", [False, True], ids=["values", "latents"])
@pytest.mark.parametrize("sinks", [None, SINKS], ids=["", "sinks"])
def test_latent_attention(ranks, size, is_absorbed, sinks):
    settings = {"cached": CACHED, "new": (1, 3, 1, 2, 1)}
    problem = LatentProblem(**settings)
    result = sharded(ranks, size, dealt_tokens.attend_latent, settings, 4, is_absorbed, {"sinks": sinks})
    one = problem.one_process(is_absorbed, return_lse=True, sinks=sinks)
    exact = problem.exact(is_absorbed, sinks)
    largest = max(rows[..., : dealt_tokens.LATENT].abs().max().item() for rows in problem.rows)
    if not is_absorbed:  # a value is a sum of latents
        values = [rows[:, 0, : dealt_tokens.LATENT] @ problem.weights["w_uv"].flatten(0, 1).T for rows in problem.rows]
        largest = max(value.abs().max().item() for value in values)
    assert_as_one(result[0], one[0], exact[0], size, largest)
    assert_as_one(result[1], one[1], exact[1], size, exact[1].abs().max().item() + 1.0)


# Bits -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", ["attend", "attend_chunk"])
def test_batch_invariant(ranks, size, method):
    """A sequence alone, among others, and in another order: the same bits, in the same number of ranks."""
    everyone = tuple(range(len(CACHED)))
    batches = [everyone, everyone[::-1], (3, 0), *((i,) for i in everyone)]
    for results in ranks.run(size, dealt_tokens.attend_in_batches, DRAFTING, 4, batches, method, {}):
        for chosen in batches:
            for i, part in zip(chosen, results[chosen], strict=True):
                assert_same_bits(part, results[everyone][i])


def test_refusals(ranks):
    for answer in ranks.run(4, dealt_tokens.refusals):
        assert {name: argument for name, (argument, _) in answer.items()} == {
            "alibi": "alibi_slopes",
            "alibi of a chunk": "alibi_slopes",
            "window of a chunk": "window",
            "window of nothing": "window",
            "heads": "by_heads",
            "scales": "cache",
            "interleave": "interleave",
        }
        assert "context_parallel" in answer["heads"][1] and "6 heads" in answer["heads"][1]


# Whole models ---------------------------------------------------------------------------------------------------------

LENGTHS, NEW = (37, 3, 18), 20


@pytest.fixture(scope="module")
def one_process():
    """By transformers' own attention: tokens and logits of each sequence, for itself."""
    pytest.importorskip("transformers")
    from outside.tiny_models import prompts, rival_of, tiny_model

    def generate(name):
        model, tokens, logits = tiny_model(name), [], []
        model.set_attn_implementation(rival_of(name))
        for prompt in prompts(LENGTHS):
            made = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                max_new_tokens=NEW,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
            tokens.append(made.sequences[0, len(prompt) :].tolist())
            logits.append(torch.stack(made.logits, 1)[0])
        return tokens, torch.stack(logits)

    return generate


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss"])
def test_same_tokens(ranks, one_process, name):
    """Prompts in two chunks, then decoding of three lengths at once; windows, softcap, and sinks with windows."""
    from outside import dealt_model

    tokens, logits = one_process(name)
    best = logits.topk(2).values
    assert (best[..., 0] - best[..., 1]).min() > 1e-3  # the tokens hang on no rounding
    for size, interleave, in_chunks in ((2, 4, True), (4, 3, False)):
        answers = ranks.run(size, dealt_model.generate, name, LENGTHS, NEW, interleave, in_chunks)
        for rank_tokens, rank_logits in answers:
            assert rank_tokens == tokens
            assert (rank_logits - logits).abs().max() <= 1e-4 * logits.abs().max()
            assert torch.equal(rank_logits, answers[0][1])
    assert len({token for sequence in tokens for token in sequence}) > 12
