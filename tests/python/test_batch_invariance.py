# SPDX-License-Identifier: Apache-2.0
"""`batch_invariant`: a sequence's result is the same bits alone, in a batch, and in the batch turned around.

The head counts and widths are those of the models, so that on a GPU these are its fast kernels, whose work is cut
among multiprocessors; the long sequence is cut into several pieces. Without a bound on new tokens a GPU takes the
kernel of prefill, with a small one that of decode.
"""

import numpy as np
import pytest
import torch

import quire

from outside import seeded
from outside.agreement import assert_same_bits
from outside.page_pool import offsets_of, u32

PAGE = 64
CACHED = (3000, 17, 900, 64, 0, 1500)
DECODING = (1, 1, 2, 1, 3, 1)
PROMPTS = (70, 200, 1, 130, 300, 5)


class Batch:
    """Sequences over pages filled with noise; `answer` runs any choice of them, in any order."""

    def __init__(self, new, row, *, kv_heads=1, is_mla=False, bound=None):
        self.new = new
        self.bound = bound
        generator = seeded(3)
        columns = -(-max(cached + new for cached, new in zip(CACHED, new)) // PAGE)
        pages = torch.randperm(columns * len(new), generator=generator).cpu().tolist()
        self.table = [pages[i * columns : (i + 1) * columns] for i in range(len(new))]
        shape = (len(pages), 1 if is_mla else 2, 1, PAGE, kv_heads, row)
        self.blocks = torch.randn(shape, generator=generator).bfloat16()
        self.scales = None

    def answer(self, op, q, chosen, **arguments):
        """One result for each chosen sequence; q holds the queries of every sequence of the batch."""
        cache = quire.PagedKVCache(
            self.blocks,
            u32([CACHED[i] for i in chosen]),
            u32([self.table[i] for i in chosen]),
            self.scales,
            max_seq_length=self.bound,
        )
        new = [self.new[i] for i in chosen]
        rows = torch.cat([q[i] for i in chosen])
        if arguments.pop("tells_chosen", False):
            arguments["chosen"] = chosen
        out = op(rows, offsets_of(new), cache, 0, batch_invariant=True, **arguments)
        return dict(zip(chosen, out.split(new)))

    def check(self, op, heads, width, **arguments):
        generator = seeded(4)
        q = [torch.randn(n, heads, width, generator=generator).bfloat16() for n in self.new]
        everything = list(range(len(self.new)))
        expected = self.answer(op, q, everything, **arguments)
        choices = [[i] for i in everything] + [everything[::-1], [4, 0], [0, 5, 2]]
        for chosen in choices:
            for i, actual in self.answer(op, q, chosen, **arguments).items():
                assert_same_bits(actual, expected[i])


@pytest.mark.parametrize(
    ("new", "bound"),
    [(DECODING, None), (DECODING, 3), (DECODING, 16), (PROMPTS, None), (PROMPTS, 512)],
    ids=["decoding", "decoding_3", "decoding_16", "prompts", "prompts_512"],
)
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(8, 2, 128), (4, 4, 64), (2, 1, 256)])
def test_flash_attention(new, bound, heads, kv_heads, head_dim):
    batch = Batch(new, head_dim, kv_heads=kv_heads, bound=bound)
    batch.check(quire.flash_attention, heads, head_dim)


@pytest.mark.parametrize("heads", [8, 16, 64, 128])
def test_mla_decode(heads):
    Batch(DECODING, 576, is_mla=True).check(
        quire.mla_decode, heads, 576, latent_dim=512, scale=192**-0.5
    )


@pytest.mark.parametrize("new", [DECODING, PROMPTS], ids=["decoding", "prompts"])
@pytest.mark.parametrize("heads", [16, 128])
def test_sparse_mla(new, heads):
    """Each token attends to keys all over its own sequence, some of them absent."""
    generator = seeded(6)
    indices = [
        torch.randint(-3, cached + count, (count, 256), generator=generator, dtype=torch.int32)
        for cached, count in zip(CACHED, new)
    ]

    def sparse(q, row_offsets, cache, layer, *, chosen, **arguments):
        rows = torch.cat([indices[i] for i in chosen])
        return quire.sparse_mla(q, row_offsets, cache, layer, indices=rows, scale=192**-0.5, latent_dim=512, **arguments)

    Batch(new, 576, is_mla=True).check(sparse, heads, 576, tells_chosen=True)


@pytest.mark.parametrize(
    ("new", "bound"), [(DECODING, None), (DECODING, 3), (PROMPTS, 512)], ids=["decoding", "decoding_3", "prompts"]
)
@pytest.mark.parametrize("heads", [8, 64])
def test_mla_indexer(new, bound, heads):
    """Scores of a few values: many keys are equal, or nearly so in float32."""
    batch = Batch(new, 128, is_mla=True, bound=bound)
    batch.blocks = batch.blocks.to(torch.float8_e4m3fn)
    scales = torch.rand((*batch.blocks.shape[:-1], 1), generator=seeded(7), dtype=torch.float32)
    batch.scales = (1.0 + scales * 2.0**-20).contiguous()
    weights = [torch.rand(count, heads, generator=seeded(8), dtype=torch.float32) for count in new]

    def index(q, row_offsets, cache, layer, *, chosen, **arguments):
        rows = torch.cat([weights[i] for i in chosen])
        return quire.mla_indexer(q.to(torch.float8_e4m3fn), rows, row_offsets, cache, layer, top_k=64, **arguments)

    batch.check(index, heads, 128, tells_chosen=True)


@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
@pytest.mark.parametrize("decode_tokens", [0, 2])
def test_mla_prefill_in_one_chunk(is_fp8, decode_tokens):
    heads, nope, rope, value, latent = 2, 128, 64, 128, 512
    weight = torch.randn(heads * (nope + value), latent, generator=seeded(9)) * 0.05
    arguments = {}
    if is_fp8:
        weight = weight.to(torch.float8_e4m3fn)
        arguments["kv_b_proj_scale"] = torch.full((heads * 2, latent // 128), 0.5, dtype=torch.float32)
    else:
        weight = weight.bfloat16()

    def prefill(q, row_offsets, cache, layer, **invariant):
        plan = quire.mla_prefill_plan(row_offsets, cache, layer, buffer_tokens=32768, decode_tokens=decode_tokens)
        return quire.mla_prefill(
            q, row_offsets, cache, layer, kv_b_proj=weight, scale=192**-0.5, plan=plan, **arguments, **invariant
        )

    Batch(PROMPTS, latent + rope, is_mla=True).check(prefill, heads, nope + rope)


def project(x, weight, tokens, **arguments):
    """Rows of q, K and V of the first tokens."""
    blocks = torch.zeros(4, 2, 1, PAGE, 2, 64, dtype=x.dtype, device="cpu")
    cache = quire.PagedKVCache(blocks, np.zeros(1, np.uint32), np.arange(4, dtype=np.uint32)[None])
    q = quire.fused_qkv_matmul(x[:tokens], np.array([0, tokens], np.uint32), weight, cache, 0, **arguments)
    rows = blocks.transpose(0, 1).reshape(2, 4 * PAGE, 2 * 64)[:, :tokens]
    return torch.cat([q, *rows], dim=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_int4", [False, True], ids=["dense", "int4"])
def test_projections_on_a_cpu_do_not_depend_on_the_number_of_tokens(dtype, is_int4):
    generator = torch.Generator("cpu").manual_seed(5)
    x = torch.randn(200, 256, generator=generator, device="cpu").to(dtype)
    if is_int4:
        codes = torch.randint(16, (512, 256), generator=generator, device="cpu", dtype=torch.uint8)
        scale = torch.rand(512, 4, generator=generator, device="cpu").to(dtype)
        weight, arguments = quire.pack_int4(codes), {"weight_scale": scale, "quant": quire.Quant("int4", group_size=64)}
    else:
        weight, arguments = torch.randn(512, 256, generator=generator, device="cpu").to(dtype), {}
    expected = project(x, weight, 200, **arguments)
    for tokens in (1, 2, 4, 5, 8, 9, 16, 17, 33, 64, 129):
        assert_same_bits(project(x, weight, tokens, **arguments), expected[:tokens])


def invariant_weight(kind, rows, columns):
    """A weight of this kind, the other arguments that it needs, and what x becomes."""
    generator = seeded(11)
    arguments, activate = {}, torch.Tensor.bfloat16
    weight = torch.randn(rows, columns, generator=generator)
    if kind == "bf16":
        weight = weight.bfloat16()
    elif kind == "tf32":
        arguments["allow_tf32"] = True
        activate = torch.Tensor.float
    elif kind.startswith("int4"):
        codes = torch.randint(16, (rows, columns), generator=generator, dtype=torch.uint8)
        scale = torch.rand(rows, columns // 128, generator=generator).bfloat16()
        weight, arguments = quire.pack_int4(codes), {"weight_scale": scale, "quant": quire.Quant("int4", group_size=128)}
        if kind == "int4_packed":
            weight, arguments = quire.pack_weight(weight, **arguments), {}
    else:  # fp8, with a scale for each token or for each 1 x 128 of x
        weight = (weight * 16).to(torch.float8_e4m3fn)
        shape = (rows // 128, columns // 128) if kind == "fp8_block" else (1, 1)
        arguments["weight_scale"] = torch.rand(shape, generator=generator, dtype=torch.float32)
        arguments["allow_fast_accum"] = True
        activate = lambda x: (x * 16).to(torch.float8_e4m3fn)  # noqa: E731
    return weight, arguments, activate


@pytest.mark.parametrize("kind", ["bf16", "tf32", "fp8_token", "fp8_block", "int4", "int4_packed"])
def test_projections_do_not_depend_on_the_number_of_tokens(kind):
    """Rows of Q, and of K and V in the pages, of the first tokens of a batch."""
    rows, columns, pages = 1536, 512, 16
    weight, arguments, activate = invariant_weight(kind, rows, columns)
    x = activate(torch.randn(pages * PAGE, columns, generator=seeded(12)))
    scale = torch.rand(pages * PAGE, columns // 128 if kind == "fp8_block" else 1, generator=seeded(13), dtype=torch.float32)

    def project(tokens):
        blocks = torch.zeros(pages, 2, 1, PAGE, 2, 128, dtype=torch.bfloat16)
        cache = quire.PagedKVCache(blocks, u32([0]), u32([list(range(pages))]))
        if kind.startswith("fp8"):
            arguments["input_scale"] = scale[:tokens]
        q = quire.fused_qkv_matmul(
            x[:tokens], offsets_of([tokens]), weight, cache, 0, batch_invariant=True, **arguments
        )
        stored = blocks.transpose(0, 1).reshape(2, pages * PAGE, 2 * 128)[:, :tokens]
        return torch.cat([q, *stored.to(q.dtype)], dim=1)

    expected = project(pages * PAGE)
    for tokens in (1, 5, 16, 17, 48, 64, 65, 129, 300, 700):
        assert_same_bits(project(tokens), expected[:tokens])


@pytest.mark.parametrize("kind", ["bf16", "tf32", "fp8_token", "fp8_block", "int4", "int4_packed"])
def test_linear_does_not_depend_on_the_number_of_tokens(kind):
    rows, columns, most = 1536, 512, 1024
    weight, arguments, activate = invariant_weight(kind, rows, columns)
    x = activate(torch.randn(most, columns, generator=seeded(12)))
    scale = torch.rand(most, columns // 128 if kind == "fp8_block" else 1, generator=seeded(13), dtype=torch.float32)

    def project(tokens):
        if kind.startswith("fp8"):
            arguments["input_scale"] = scale[:tokens]
        return quire.linear(x[:tokens], weight, batch_invariant=True, **arguments)

    expected = project(most)
    for tokens in (1, 5, 16, 17, 48, 64, 65, 129, 300, 700):
        assert_same_bits(project(tokens), expected[:tokens])
