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

    def answer(self, op, q, chosen, **arguments):
        """One result for each chosen sequence; q holds the queries of every sequence of the batch."""
        cache = quire.PagedKVCache(
            self.blocks,
            u32([CACHED[i] for i in chosen]),
            u32([self.table[i] for i in chosen]),
            max_seq_length=self.bound,
        )
        new = [self.new[i] for i in chosen]
        rows = torch.cat([q[i] for i in chosen])
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
