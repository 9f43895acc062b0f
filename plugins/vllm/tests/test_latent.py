# SPDX-License-Identifier: Apache-2.0
"""Latent attention, dense and sparse, called as vLLM's layer calls it, against float64 over keys and values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import vllm.envs as envs
from quire_vllm.indexer import IndexMetadata, choose_in
from quire_vllm.latent import LatentMetadataBuilder, QuireMLA, QuireMLABackend, use_one_projection
from quire_vllm.sparse import QuireSparseMLA, QuireSparseMLABackend, SparseMetadataBuilder
from steps import Sequences, assert_close, attend, layer, spec, visible

HEADS, LATENT, ROPE, NOPE, VALUE = 4, 512, 64, 128, 128
SCALE = (NOPE + ROPE) ** -0.5


class Projection(torch.nn.Module):
    """kv_b_proj: vLLM's layers return their result and a bias."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        weight = torch.randn(HEADS * (NOPE + VALUE), LATENT, generator=torch.Generator().manual_seed(2))
        self.weight = torch.nn.Parameter((weight * LATENT**-0.5).to(dtype), requires_grad=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return x @ self.weight.T, None


class Hidden(torch.nn.Module):
    """A projection whose weight is not a plain matrix, like a quantized one's."""

    def __init__(self, inner: Projection) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return self.inner(x)


def make(cls, projection: torch.nn.Module, kv_cache_dtype: str, sliding_window: int | None = None, **more):
    return cls(
        num_heads=HEADS,
        head_size=LATENT + ROPE,
        scale=SCALE,
        num_kv_heads=1,
        alibi_slopes=None,
        sliding_window=sliding_window,
        kv_cache_dtype=kv_cache_dtype,
        logits_soft_cap=None,
        attn_type="decoder",
        kv_sharing_target_layer_name=None,
        q_lora_rank=None,
        kv_lora_rank=LATENT,
        qk_nope_head_dim=NOPE,
        qk_rope_head_dim=ROPE,
        qk_head_dim=NOPE + ROPE,
        v_head_dim=VALUE,
        kv_b_proj=projection,
        **more,
    )


def new_cache(sequences: Sequences, kv_cache_dtype: str, dtype: torch.dtype) -> torch.Tensor:
    packed = kv_cache_dtype == "fp8_ds_mla"
    width = 656 if packed else LATENT + ROPE
    stored = torch.uint8 if kv_cache_dtype.startswith("fp8") else dtype
    return torch.zeros(sequences.num_pages, sequences.page_size, width, dtype=stored)


def as_attention_sees_it(kv_cache: torch.Tensor, kv_cache_dtype: str) -> torch.Tensor:
    """vLLM's layer views plain fp8 rows as fp8 before it attends."""
    plain = kv_cache_dtype in ("fp8", "fp8_e4m3")
    return kv_cache.view(torch.float8_e4m3fn) if plain else kv_cache


def cached_rows(kv_cache: torch.Tensor, sequences: Sequences, s: int, count: int, k_scale: float) -> torch.Tensor:
    """What the pages hold for a sequence, as numbers [count, 576]: the bytes are decoded here."""
    pages = kv_cache[sequences.table[s].long()].flatten(0, 1)[:count]
    if pages.shape[1] == LATENT + ROPE:
        plain = pages.dtype == torch.uint8
        return pages.view(torch.float8_e4m3fn).float() * k_scale if plain else pages.float()
    values = pages[:, :512].view(torch.float8_e4m3fn).float().unflatten(1, (4, 128))
    scales = pages[:, 512:528].contiguous().view(torch.float32)
    rope = pages[:, 528:].contiguous().view(torch.bfloat16).float()
    return torch.cat([(values * scales[:, :, None]).flatten(1), rope], dim=1)


def expand(rows: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of all heads from latent rows."""
    both = (rows[:, :LATENT].to(dtype) @ weight.to(dtype).T).unflatten(1, (HEADS, NOPE + VALUE))
    rope = rows[:, None, LATENT:].to(dtype).expand(-1, HEADS, -1)
    return torch.cat([both[..., :NOPE], rope], dim=-1), both[..., NOPE:]


def forward(impl, q, metadata, kv_cache, weight, k_scale: float) -> torch.Tensor:
    """What vLLM's layer does: prompts by forward_mha, the others absorbed, by forward_mqa."""
    split = metadata.num_decode_tokens
    if impl.is_sparse and metadata.prefill is not None and not metadata.prefill.use_dense_mha:
        split = q.shape[0]
    out = torch.full((q.shape[0], HEADS * VALUE), float("nan"), dtype=q.dtype)
    if split < q.shape[0]:
        impl.forward_mha(q[split:], None, None, kv_cache, metadata, torch.tensor(k_scale), out[split:])
    if split > 0:
        per_head = weight.unflatten(0, (HEADS, NOPE + VALUE))
        absorbed = torch.einsum("thn,hnl->thl", q[:split, :, :NOPE], per_head[:, :NOPE])
        latent, lse = impl.forward_mqa((absorbed, q[:split, :, NOPE:]), kv_cache, metadata, layer(k_scale))
        assert lse is None
        out[:split] = torch.einsum("thl,hvl->thv", latent, per_head[:, NOPE:]).flatten(1)
    return out.view(-1, HEADS, VALUE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "fp8", "fp8_ds_mla"])
@pytest.mark.parametrize("hidden_weight", [False, True])
def test_dense(dtype, kv_cache_dtype, hidden_weight, vllm_config, default_dtype):
    default_dtype(dtype)
    page, k_scale = 16, 0.25 if kv_cache_dtype == "fp8" else 1.0
    cached, new = [37, 0, 20], [1, 40, 25]  # vLLM puts sequences of few new tokens first
    sequences = Sequences([c + n for c, n in zip(cached, new, strict=True)], page)
    projection = Projection(dtype)
    impl = make(QuireMLA, Hidden(projection) if hidden_weight else projection, kv_cache_dtype)
    builder = LatentMetadataBuilder(spec(page), ["layer"], vllm_config, torch.device("cpu"))
    kv_cache = new_cache(sequences, kv_cache_dtype, dtype)
    random = torch.Generator().manual_seed(3)
    rows = [torch.randn(n, LATENT + ROPE, generator=random).to(dtype) for n in sequences.lengths]
    for before, counts in (([0, 0, 0], cached), (cached, new)):
        common = sequences.step(before, counts)
        metadata = builder.build(0, common)
        step = torch.cat([rows[s][b : b + c] for s, (b, c) in enumerate(zip(before, counts, strict=True))])
        name, scale = impl.kv_cache_dtype, torch.tensor(k_scale)
        impl.do_kv_cache_update(
            step[:, :LATENT], step[:, None, LATENT:], kv_cache, common.slot_mapping, name, scale
        )
        q = torch.randn(common.num_actual_tokens, HEADS, NOPE + ROPE, generator=random).to(dtype)
        seen_cache = as_attention_sees_it(kv_cache, kv_cache_dtype)
        out = forward(impl, q, metadata, seen_cache, projection.weight, k_scale)
        _check_dense(q, out, kv_cache, sequences, before, counts, projection.weight, k_scale, dtype)
    assert metadata.num_decodes == 1 and metadata.num_prefills == 2


def _check_dense(q, out, kv_cache, sequences, before, counts, weight, k_scale, dtype):
    start = 0
    for s, (cached, new) in enumerate(zip(before, counts, strict=True)):
        taken, total = slice(start, start + new), cached + new
        start += new
        if new == 0:
            continue
        rows = cached_rows(kv_cache, sequences, s, total, k_scale)
        seen = visible(new, total)
        exact = attend(q[taken], *expand(rows, weight, torch.float64), seen, SCALE)
        naive = attend(q[taken], *expand(rows, weight, dtype), seen, SCALE, dtype=dtype)
        assert_close(out[taken], exact, naive)


def test_short_extensions_are_decoded(vllm_config):
    builder = LatentMetadataBuilder(spec(16), ["layer"], vllm_config, torch.device("cpu"))
    sequences = Sequences([30, 30, 60], 16)
    metadata = builder.build(0, sequences.step([29, 22, 20], [1, 8, 9]))
    assert (metadata.num_decodes, metadata.num_decode_tokens, metadata.num_prefills) == (2, 9, 1)
    assert metadata.prefill.batch.row_offsets.tolist() == [0, 9]
    assert metadata.prefill.keys == 32


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_the_way_of_a_prompt_in_invariant_batches_does_not_depend_on_others(batch_invariant, vllm_config, monkeypatch):
    monkeypatch.setattr(envs, "VLLM_BATCH_INVARIANT", batch_invariant, raising=False)
    model = SimpleNamespace(max_model_len=4096, hf_text_config=SimpleNamespace(index_topk=50))
    config = SimpleNamespace(
        model_config=model,
        scheduler_config=vllm_config.scheduler_config,
        compilation_config=vllm_config.compilation_config,
    )
    builder = SparseMetadataBuilder(spec(64), ["layer"], config, torch.device("cpu"))
    alone = builder.build(0, Sequences([30], 64).step([0], [30]))
    among = builder.build(0, Sequences([30, 60], 64).step([0, 0], [30, 60]))
    assert among.prefill.use_dense_mha is False
    assert alone.prefill.use_dense_mha is not batch_invariant
    assert (alone.prefill_max_seq_len <= alone.topk_tokens) is not batch_invariant


def test_invariant_batches_have_one_projection(monkeypatch):
    """vLLM's kernel for up to 16 tokens gives other bits than the one for more."""
    deepseek = pytest.importorskip("vllm.model_executor.models.deepseek_v2")
    projection = deepseek.DeepSeekV2FusedQkvAProjLinear
    own = projection.forward
    monkeypatch.setattr(projection, "forward", own)  # and back
    use_one_projection()
    assert projection.forward is not own
    assert projection.forward is projection.__mro__[1].forward


@pytest.mark.parametrize("kv_cache_dtype", ["auto", "fp8_ds_mla"])
def test_sparse(kv_cache_dtype, vllm_config, default_dtype):
    """Index keys are stored, positions chosen, and attention goes to those alone."""
    dtype, page, top_k = torch.bfloat16, 64, 32
    default_dtype(dtype)
    cached, new = [150, 0], [2, 100]
    sequences = Sequences([c + n for c, n in zip(cached, new, strict=True)], page)
    projection = Projection(dtype)
    chosen = torch.full((256, top_k), -7, dtype=torch.int32)
    impl = make(QuireSparseMLA, projection, kv_cache_dtype, topk_indices_buffer=chosen)
    builder = LatentMetadataBuilder(spec(page), ["layer"], vllm_config, torch.device("cpu"))
    kv_cache = new_cache(sequences, kv_cache_dtype, dtype)
    index_cache = torch.zeros(sequences.num_pages, page, 132, dtype=torch.uint8)
    random = torch.Generator().manual_seed(4)
    rows = [torch.randn(n, LATENT + ROPE, generator=random).to(dtype) for n in sequences.lengths]
    index_keys = [torch.randn(n, 128, generator=random).to(dtype) for n in sequences.lengths]
    for before, counts in (([0, 0], cached), (cached, new)):
        common = sequences.step(before, counts)
        metadata = builder.build(0, common)
        if metadata.prefill is not None:
            metadata.prefill.use_dense_mha = False
        taken = [slice(b, b + c) for b, c in zip(before, counts, strict=True)]
        step = torch.cat([rows[s][t] for s, t in enumerate(taken)])
        impl.do_kv_cache_update(
            step[:, :LATENT], step[:, None, LATENT:], kv_cache, common.slot_mapping, kv_cache_dtype, torch.tensor(1.0)
        )
        tokens = common.num_actual_tokens
        index_q = torch.randn(tokens, 8, 128, generator=random).to(torch.float8_e4m3fn)
        weights = torch.rand(tokens, 8, generator=random)
        index_step = IndexMetadata(metadata.batch, tokens, common.slot_mapping)
        k = torch.cat([index_keys[s][t] for s, t in enumerate(taken)])
        choose_in(index_step, index_cache, index_q, k, weights, top_k, chosen)
        q = torch.randn(tokens, HEADS, NOPE + ROPE, generator=random).to(dtype)
        out = forward(impl, q, metadata, kv_cache, projection.weight, 1.0)
        start = 0
        for s, (c, n) in enumerate(zip(before, counts, strict=True)):
            _check_choice(chosen[start:], index_q[start:], weights[start:], index_cache, sequences, s, c, n)
            _check_sparse(q, out, chosen, kv_cache, sequences, s, c, n, start, projection.weight)
            start += n


def _check_choice(chosen, index_q, weights, index_cache, sequences, s, cached, new):
    """No key that was left has a better score than one that was chosen, by the keys that the cache holds."""
    top_k = chosen.shape[1]
    keys, scales = _index_keys(index_cache, sequences, s)
    for i in range(0, new, 7):
        seen = cached + i + 1
        count = min(top_k, seen)
        mine = chosen[i][:count].long()
        assert chosen[i][count:].eq(-1).all() and mine.unique().numel() == count and mine.max() < seen
        products = (index_q[i].double() @ keys[:seen].T).relu() * weights[i].double()[:, None]
        scores = products.sum(0) * scales[:seen]
        left = torch.ones(seen, dtype=torch.bool).index_fill_(0, mine, False)
        if left.any():
            assert scores[mine].min() >= scores[left].max() * (1 - 1e-5)


def _index_keys(index_cache: torch.Tensor, sequences: Sequences, s: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A sequence's index keys and their scales: in a page first all values, then all scales."""
    pages = index_cache[sequences.table[s].long()].flatten(1)
    split = sequences.page_size * 128
    values = pages[:, :split].contiguous().view(torch.float8_e4m3fn).double().reshape(-1, 128)
    return values, pages[:, split:].contiguous().view(torch.float32).double().flatten()


def _check_sparse(q, out, chosen, kv_cache, sequences, s, cached, new, start, weight):
    rows = cached_rows(kv_cache, sequences, s, cached + new, 1.0)
    for i in range(0, new, 7):
        t = start + i
        some = rows[chosen[t][chosen[t] >= 0].long()]
        seen = torch.ones(1, some.shape[0], dtype=torch.bool)
        exact = attend(q[t : t + 1], *expand(some, weight, torch.float64), seen, SCALE)
        naive = attend(q[t : t + 1], *expand(some, weight, torch.bfloat16), seen, SCALE, dtype=torch.bfloat16)
        assert_close(out[t : t + 1], exact, naive)


def test_what_vllm_reads(vllm_config):
    assert QuireMLABackend.is_mla() and not QuireMLABackend.is_sparse()
    assert QuireSparseMLABackend.is_mla() and QuireSparseMLABackend.is_sparse()
    assert QuireSparseMLABackend.get_kv_cache_shape(3, 64, 1, 576, "fp8_ds_mla") == (3, 64, 656)
    with pytest.raises(ValueError, match="quire: latent attention with a sliding window"):
        make(QuireMLA, Projection(torch.float32), "auto", sliding_window=128)


@pytest.mark.parametrize("chosen_by_quire", [True, False])
def test_indexer_takes_the_place_of_vllms(chosen_by_quire, vllm_config, default_dtype):
    """vLLM's own class makes Quire's op where the user named Quire, and stays what it is otherwise."""
    from quire_vllm import indexer, register
    from vllm.forward_context import set_forward_context
    from vllm.model_executor.layers.sparse_attn_indexer import SparseAttnIndexer
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    register()
    indexer.register()
    indexer.register()
    backend = AttentionBackendEnum["QUIRE"] if chosen_by_quire else AttentionBackendEnum["FLASHMLA_SPARSE"]
    vllm_config.attention_config.backend = backend
    sequences = Sequences([90], 64)
    k_cache = torch.nn.Module()
    k_cache.prefix, k_cache.kv_cache = "layer", torch.zeros(sequences.num_pages, 64, 132, dtype=torch.uint8)
    chosen = torch.full((128, 16), -7, dtype=torch.int32)
    op = SparseAttnIndexer(k_cache, 128, "ue8m0", 16, 128, 256, 256, chosen)
    assert op.on_quire == chosen_by_quire
    if not chosen_by_quire:
        assert not hasattr(k_cache, "get_attn_backend")
        return
    builder = k_cache.get_attn_backend().get_builder_cls()(spec(64), ["layer"], vllm_config, torch.device("cpu"))
    random = torch.Generator().manual_seed(5)
    index_q = torch.randn(90, 8, 128, generator=random).to(torch.float8_e4m3fn)
    k, weights = torch.randn(90, 128, generator=random), torch.rand(90, 8, generator=random)
    with set_forward_context(None, vllm_config):
        op(k, index_q, k, weights)
    assert chosen.eq(-7).all()
    with set_forward_context({"layer": builder.build(0, sequences.step([0], [90]))}, vllm_config):
        assert op(k, index_q, k, weights) is chosen
    _check_choice(chosen, index_q, weights, k_cache.kv_cache, sequences, 0, 0, 90)
    assert chosen[90:].eq(-7).all()
