# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V4's compressors and attention layers through quire, against transformers' modules in float32.

transformers sees each sequence whole and without a cache; quire gets ragged batches in pieces. Rows are float32 here, so
that both may differ by the order of their sums alone; what fp8 rows of V4's own format cost is bounded at the end.
"""

import ml_dtypes
import numpy as np
import pytest
import torch
from problems import offsets

import quire

deepseek_v4 = pytest.importorskip("transformers.models.deepseek_v4", reason="this transformers has no DeepSeek-V4")
from transformers import DeepseekV4Config  # noqa: E402
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as modeling  # noqa: E402

WIDTH, ROPE, HEADS, WINDOW = 24, 8, 3, 6
RATIOS = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8}
MAX_POSITIONS = 64
PAGE = 4
# New tokens of three sequences, call by call.
SCHEDULES = {
    "whole": [(37, 0, 9)],
    "pieces": [(5, 3, 8), (1, 0, 1), (7, 4, 0), (3, 1, 2), (16, 9, 1), (1, 1, 1)],
    "decode": [(6, 1, 0)] + [(1, 1, 1)] * 13,
}


def config(layer_type):
    return DeepseekV4Config(
        hidden_size=32,
        head_dim=WIDTH,
        partial_rotary_factor=ROPE / WIDTH,
        num_attention_heads=HEADS,
        num_hidden_layers=1,
        layer_types=[layer_type],
        compress_rates=RATIOS,
        sliding_window=WINDOW,
        q_lora_rank=20,
        o_groups=1,
        o_lora_rank=16,
        index_n_heads=4,
        index_head_dim=16,
        index_topk=MAX_POSITIONS,
        max_position_embeddings=MAX_POSITIONS,
        attn_implementation="eager",
    )


def randomized(module, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            scale = 0.2 if parameter.ndim > 1 else 0.1
            parameter.copy_((1.0 if "norm" in name else 0.0) + scale * noise)
            if "position_bias" in name or "gate_proj" in name:
                parameter.mul_(5.0)  # gates that choose
    return module.eval().requires_grad_(False)


def tables(rotary, kind):
    """freqs_cis of a rope of the model: cos, sin interleaved."""
    cos, sin = rotary(torch.zeros(1), torch.arange(MAX_POSITIONS)[None], layer_type=kind)
    return torch.stack((cos[0], sin[0]), -1).flatten(1)


class Sequences:
    """Three sequences of hidden states, and how far each has come."""

    def __init__(self, schedule, seed=3):
        self.steps = SCHEDULES[schedule]
        self.totals = [sum(step[b] for step in self.steps) for b in range(3)]
        generator = torch.Generator().manual_seed(seed)
        self.hidden = [torch.randn(total, 32, generator=generator) for total in self.totals]

    def __iter__(self):
        cached = [0, 0, 0]
        for step in self.steps:
            rows = [self.hidden[b][cached[b] : cached[b] + step[b]] for b in range(3)]
            positions = torch.cat([torch.arange(cached[b], cached[b] + step[b]) for b in range(3)])
            yield step, list(cached), torch.cat(rows), positions
            cached = [c + n for c, n in zip(cached, step)]


class Pool:
    """Rows of one layer, pages dealt in turn to the sequences; the page table has room for all of them."""

    def __init__(self, width, rows=MAX_POSITIONS, **options):
        pages = rows // PAGE
        self.table = torch.arange(3 * pages, dtype=torch.int32).reshape(pages, 3).T.contiguous()
        self.blocks = options.pop("blocks", None)
        if self.blocks is None:
            self.blocks = torch.full((3 * pages, 1, 1, PAGE, 1, width), float("nan"))
        self.options = options

    def cache(self, cached):
        return quire.PagedKVCache(self.blocks, torch.tensor(cached, dtype=torch.int32), self.table, **self.options)

    def rows(self, sequence, count):
        return self.blocks[self.table[sequence].long(), 0, 0, :, 0].flatten(0, 1)[:count]


class Compressor:
    """compress_keys with the weights of one of the model's compressors."""

    def __init__(self, module, pool):
        self.module, self.pool = module, pool
        ratio, columns = module.position_bias.shape
        self.ratio = ratio
        self.state = torch.full((5, columns // module.head_dim * ratio, 2, columns), float("nan"))
        self.slots = torch.tensor([4, 0, 2], dtype=torch.int32)
        self.freqs = tables(module.rotary_emb, "compress")

    def step(self, hidden, step, cached):
        quire.compress_keys(
            self.module.kv_proj(hidden),
            self.module.gate_proj(hidden),
            torch.tensor(offsets(step).astype(np.int32)),
            self.pool.cache(cached),
            0,
            bias=self.module.position_bias,
            gamma=self.module.kv_norm.weight,
            freqs_cis=self.freqs,
            state=self.state,
            state_slots=self.slots,
            epsilon=self.module.kv_norm.variance_epsilon,
        )


def compressed_by_transformers(module, hidden):
    """All rows of one sequence."""
    cache = modeling.DeepseekV4CSACache if module.position_bias.shape[0] == 4 else modeling.DeepseekV4HCACache
    layer = cache(config("compressed_sparse_attention"))

    class Past:
        layers = [layer]

    positions = torch.arange(len(hidden))[None]
    name = "indexer" if isinstance(module, modeling.DeepseekV4Indexer) else "compressor"
    module(hidden[None], torch.zeros(1, len(hidden), 20), positions, Past(), 0)
    return layer.compressed_kv[name].reshape(-1, module.head_dim)


def compressors():
    csa = modeling.DeepseekV4CSACompressor(config("compressed_sparse_attention"))
    hca = modeling.DeepseekV4HCACompressor(config("heavily_compressed_attention"))
    return {"csa": csa, "hca": hca, "indexer": csa.indexer}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", ["csa", "hca", "indexer"])
def test_compressed_rows_are_the_models(kind, schedule):
    module = randomized(compressors()[kind], 11)
    sequences = Sequences(schedule)
    compressor = Compressor(module, Pool(module.head_dim))
    for step, cached, hidden, _ in sequences:
        compressor.step(hidden, step, cached)
    for b, hidden in enumerate(sequences.hidden):
        if len(hidden) == 0:
            continue
        count = len(hidden) // compressor.ratio
        expected = compressed_by_transformers(module, hidden)[:count]
        torch.testing.assert_close(compressor.pool.rows(b, count), expected, rtol=2e-5, atol=2e-5)
        assert compressor.pool.rows(b, count + 1)[count:].isnan().all()


@pytest.mark.parametrize("kind", ["csa", "hca"])
def test_rows_do_not_depend_on_where_a_prompt_is_cut(kind):
    module = randomized(compressors()[kind], 11)
    totals = (38, 17, 13)
    generator = torch.Generator().manual_seed(5)
    hidden = [torch.randn(total, 32, generator=generator) for total in totals]

    def rows_of(steps):
        compressor = Compressor(module, Pool(module.head_dim))
        cached = [0, 0, 0]
        # Projections of the whole: a product may round otherwise in another batch.
        kv, gate = [[m(h) for h in hidden] for m in (module.kv_proj, module.gate_proj)]
        for step in steps:
            parts = [slice(c, c + n) for c, n in zip(cached, step)]
            quire.compress_keys(
                torch.cat([x[s] for x, s in zip(kv, parts)]), torch.cat([x[s] for x, s in zip(gate, parts)]),
                torch.tensor(offsets(step).astype(np.int32)), compressor.pool.cache(cached), 0,
                bias=module.position_bias, gamma=module.kv_norm.weight, freqs_cis=compressor.freqs,
                state=compressor.state, state_slots=compressor.slots,
            )
            cached = [c + n for c, n in zip(cached, step)]
        return [compressor.pool.rows(b, total // compressor.ratio) for b, total in enumerate(totals)]

    whole = rows_of([totals])
    cut = rows_of([(1, 16, 3), (2, 0, 1), (18, 1, 9), *[(1, 0, 0)] * 17])
    for left, right in zip(whole, cut):
        assert torch.equal(left, right)


class Layer:
    """One attention layer of the model by quire's ops: window, compressed rows, sinks, rotation taken back."""

    def __init__(self, layer_type, pool=None):
        self.layer_type = layer_type
        self.module = randomized(modeling.DeepseekV4Attention(config(layer_type), 0), 7)
        self.rotary = modeling.DeepseekV4RotaryEmbedding(config(layer_type))
        self.kind = self.module.rope_layer_type
        self.freqs = tables(self.rotary, self.kind)
        self.window = pool() if pool else Pool(WIDTH)
        self.compressor = None
        if self.module.compressor is not None:
            self.compressor = Compressor(self.module.compressor, pool() if pool else Pool(WIDTH))
        self.indexer = None
        if layer_type == "compressed_sparse_attention":
            self.indexer = Compressor(self.module.compressor.indexer, Pool(16))

    def rotate(self, x, batch, cache, **options):
        return quire.rope(x, batch, cache, 0, freqs_cis=self.freqs, interleaved=True, rotate_key=False, **options)

    def step(self, hidden, step, cached, positions):
        module = self.module
        batch = torch.tensor(offsets(step).astype(np.int32))
        window = self.window.cache(cached)
        q = module.q_b_norm(module.q_b_proj(module.q_a_norm(module.q_a_proj(hidden))).view(-1, HEADS, WIDTH))
        key = module.kv_norm(module.kv_proj(hidden)).view(-1, 1, WIDTH)
        quire.store(self.rotate(key, batch, window), batch, window, 0)
        indices = positions[:, None] - torch.arange(WINDOW - 1, -1, -1)
        extra = None
        if self.compressor is not None:
            self.compressor.step(hidden, step, cached)
            extra = quire.SparseExtra(
                self.compressor.pool.cache(cached), 0, self.chosen(hidden, step, cached, positions, batch),
                tokens_per_row=self.compressor.ratio,
            )
        out = quire.sparse_mla(
            self.rotate(q, batch, window), batch, window, 0, indices=indices.clamp(min=-1).int(), scale=module.scaling,
            sinks=module.sinks, extra=extra, latent_dim=WIDTH,
        )
        out = self.rotate(out, batch, window, inverse=True)
        return module.o_b_proj(module.o_a_proj(out.reshape(len(hidden), 1, -1)).flatten(1))

    def chosen(self, hidden, step, cached, positions, batch):
        """Compressed rows that each token may see: all of them in HCA, the best in CSA, which here are all too."""
        ratio = self.compressor.ratio
        if self.indexer is None:
            rows = torch.arange(MAX_POSITIONS // ratio).expand(len(positions), -1)
            return torch.where(rows < (positions[:, None] + 1) // ratio, rows, -1).int()
        self.indexer.step(hidden, step, cached)
        keys, scales = quire.quantize_fp8(self.indexer.pool.blocks.flatten(0, 4).nan_to_num())
        shape = self.indexer.pool.blocks.shape
        cache = quire.PagedKVCache(
            keys.view(shape), torch.tensor(cached, dtype=torch.int32), self.indexer.pool.table,
            scales.view(*shape[:5], 1),
        )
        q = torch.ones(len(hidden), 2, 16).to(torch.float8_e4m3fn)
        return quire.mla_indexer(
            q, torch.ones(len(hidden), 2), batch, cache, 0, top_k=MAX_POSITIONS // ratio, tokens_per_key=ratio
        )

    def by_transformers(self, hidden):
        count = len(hidden)
        positions = torch.arange(count)
        distance = positions[:, None] - positions
        mask = torch.where((distance >= 0) & (distance < WINDOW), 0.0, float("-inf"))[None, None]
        ropes = {kind: self.rotary(hidden, positions[None], layer_type=kind) for kind in ("main", "compress")}
        return self.module(hidden[None], ropes, positions[None], mask)[0][0]


LAYERS = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layer_type", LAYERS)
def test_attention_layers_are_the_models(layer_type, schedule):
    layer = Layer(layer_type)
    sequences = Sequences(schedule)
    outs = [[], [], []]
    for step, cached, hidden, positions in sequences:
        out = layer.step(hidden, step, cached, positions)
        for b, part in enumerate(out.split(step)):
            outs[b].append(part)
    for b, hidden in enumerate(sequences.hidden):
        if len(hidden) == 0:
            continue
        torch.testing.assert_close(torch.cat(outs[b]), layer.by_transformers(hidden), rtol=1e-4, atol=1e-5)


def e8m0_pool():
    """Rows of 16 e4m3 and 8 bf16 columns, powers of two behind the rows of their page: a small V4 page."""
    row, scales = WIDTH - ROPE + 2 * ROPE, 8
    pages = 3 * MAX_POSITIONS // PAGE
    pool = torch.full((pages, PAGE * (row + scales)), 255, dtype=torch.uint8)
    blocks = pool.as_strided((pages, 1, 1, PAGE, 1, row), (pool.stride(0), row, row, row, row, 1))
    powers = pool.as_strided((pages, 1, 1, PAGE, 1, 2), (pool.stride(0), scales, scales, scales, scales, 1), PAGE * row)
    return Pool(
        row, blocks=blocks, scales=powers.view(torch.float8_e8m0fnu),
        row_format=quire.RowFormat.mla_fp8_e8m0(WIDTH - ROPE, ROPE, 8),
    )


@pytest.mark.parametrize("layer_type", LAYERS)
def test_rows_of_v4s_own_format_cost_little(layer_type):
    layer = Layer(layer_type, pool=e8m0_pool)
    sequences = Sequences("pieces")
    outs = [[], [], []]
    for step, cached, hidden, positions in sequences:
        for b, part in enumerate(layer.step(hidden, step, cached, positions).split(step)):
            outs[b].append(part)
    for b, hidden in enumerate(sequences.hidden):
        expected = layer.by_transformers(hidden)
        error = (torch.cat(outs[b]) - expected).norm() / expected.norm()
        assert 1e-5 < error < 0.06  # e4m3: 2^-4 of a number at most


def test_a_page_of_v4_holds_what_vllm_puts_there():
    """584 bytes a token: 448 e4m3, 64 bf16; behind the page's rows 7 exponents and a byte of padding each."""
    rng = np.random.default_rng(0)
    page_size = 64
    pool = np.full((3, page_size * 584), 0xEE, np.uint8)
    strides = (pool.strides[0], 576, 576, 576, 576, 1)
    blocks = np.lib.stride_tricks.as_strided(pool, (3, 1, 1, page_size, 1, 576), strides)
    behind = pool[:, page_size * 576 :].view(ml_dtypes.float8_e8m0fnu)
    scales = np.lib.stride_tricks.as_strided(behind, (3, 1, 1, page_size, 1, 7), (pool.strides[0], 8, 8, 8, 8, 1))
    cache = quire.PagedKVCache(
        blocks, np.array([62], np.uint32), np.array([[2, 0]], np.uint32), scales,
        row_format=quire.RowFormat.mla_fp8_e8m0(),
    )
    x = (rng.standard_normal((4, 1, 512)) * np.exp(rng.uniform(-9, 9, (4, 1, 512)))).astype(np.float32)
    quire.store(x, offsets([4]), cache, 0)

    expected = np.full_like(pool, 0xEE)
    for token, (page, slot) in enumerate([(2, 62), (2, 63), (0, 0), (0, 1)]):
        nope = x[token, 0, :448].reshape(7, 64)
        exponents = np.ceil(np.log2(np.abs(nope).max(1) / 448)).astype(int)
        codes = (nope / np.exp2(exponents.astype(np.float32))[:, None]).astype(ml_dtypes.float8_e4m3fn)
        row = expected[page, slot * 576 : (slot + 1) * 576]
        row[:448] = codes.view(np.uint8).reshape(-1)
        row[448:] = x[token, 0, 448:].astype(ml_dtypes.bfloat16).view(np.uint8)
        expected[page, page_size * 576 + slot * 8 :][:7] = exponents + 127
    np.testing.assert_array_equal(pool, expected)
