# SPDX-License-Identifier: Apache-2.0
"""Quire's implementation of vLLM's attention interface, step by step, against float64."""

from __future__ import annotations

import pytest
import quire
import torch
from quire_vllm.attention import QuireAttention, QuireBackend, QuireMetadataBuilder
from steps import Sequences, assert_close, attend, layer, spec, visible

PAGE, HEADS, KV_HEADS, WIDTH = 16, 8, 2, 64
SCALE = WIDTH**-0.5

VARIANTS = {
    "bf16": {},
    "f16": {"dtype": torch.float16},
    "f32": {"dtype": torch.float32},
    "heads_before_tokens": {"heads_first": True},
    "window": {"sliding_window": 20},
    "softcap": {"logits_soft_cap": 5.0},
    "alibi": {"alibi_slopes": [2.0 ** -(h + 1) for h in range(HEADS)]},
    "sinks": {"sinks": torch.linspace(-1, 2, HEADS)},
    "bidirectional": {"causal": False},
    "fp8": {"kv_cache_dtype": "fp8"},
    "fp8_scaled": {"kv_cache_dtype": "fp8", "k_scale": 0.5, "v_scale": 2.0},
    "unused_sequences": {"unused": 3},
    "shared_prefix": {"shared": 2},
}


def run(variant: dict, vllm_config, default_dtype):
    """Two steps: a prompt for some, then new tokens for all. Returns results and what they should be."""
    options = dict(variant)
    dtype = options.pop("dtype", torch.bfloat16)
    causal, unused = options.pop("causal", True), options.pop("unused", 0)
    shared, heads_first = options.pop("shared", 0), options.pop("heads_first", False)
    scales = options.pop("k_scale", 1.0), options.pop("v_scale", 1.0)
    default_dtype(dtype)
    cached, new = [PAGE * shared + n for n in (0, 45, 33)], [50, 1, 3]
    sequences = Sequences([c + n for c, n in zip(cached, new, strict=True)], PAGE)
    if shared:
        sequences.share(shared)
    impl = QuireAttention(HEADS, WIDTH, SCALE, KV_HEADS, **{"kv_cache_dtype": "auto", **options})
    impl.process_weights_after_loading(dtype)
    builder = QuireMetadataBuilder(spec(PAGE), ["layer"], vllm_config, torch.device("cpu"))
    stored = torch.uint8 if "kv_cache_dtype" in options else dtype
    shape = (sequences.num_pages, PAGE, KV_HEADS, 2 * WIDTH)
    kv_cache = torch.zeros(shape, dtype=stored).transpose(1, 2)
    if heads_first:
        kv_cache = torch.zeros(sequences.num_pages, KV_HEADS, PAGE, 2 * WIDTH, dtype=stored)

    random = torch.Generator().manual_seed(1)
    keys = [torch.randn(n, KV_HEADS, 2 * WIDTH, generator=random).to(dtype) for n in sequences.lengths]
    for rows in keys[1:]:
        rows[: PAGE * shared] = keys[0][: PAGE * shared]
    results = []
    for before, counts in (([0, 0, 0], cached), (cached, new)):
        common = sequences.step(before, counts, unused, causal)
        tokens = common.num_actual_tokens
        step = [keys[s][b : b + c] for s, (b, c) in enumerate(zip(before, counts, strict=True))]
        # As in vLLM: q, k and v are columns of one projection's result; rows past the last token fill up the shape.
        both = torch.cat([*step, torch.zeros(unused, KV_HEADS, 2 * WIDTH, dtype=dtype)])
        q = torch.randn(tokens + unused, HEADS, WIDTH, generator=random).to(dtype)
        out = torch.full((tokens + unused, HEADS, WIDTH), float("nan"), dtype=dtype)
        prefix = PAGE * shared if before != [0, 0, 0] else 0
        metadata = builder.build(prefix, common)
        impl.forward(layer(*scales), q, both[..., :WIDTH], both[..., WIDTH:], kv_cache, metadata, out)
        results.append((q, out, before, counts))
    return keys, scales, causal, dtype, results


@pytest.mark.parametrize("name", VARIANTS)
def test_steps(name, vllm_config, default_dtype):
    variant = VARIANTS[name]
    keys, scales, causal, dtype, results = run(variant, vllm_config, default_dtype)
    k, v = [rows[..., :WIDTH] for rows in keys], [rows[..., WIDTH:] for rows in keys]
    if variant.get("kv_cache_dtype") == "fp8":
        k = [_through_fp8(rows, scales[0]) for rows in k]
        v = [_through_fp8(rows, scales[1]) for rows in v]
    options = {
        "softcap": variant.get("logits_soft_cap", 0.0),
        "slopes": torch.tensor(variant["alibi_slopes"]) if "alibi_slopes" in variant else None,
        "sinks": variant.get("sinks"),
    }
    for q, out, before, counts in results:
        start = 0
        for s, (cached, new) in enumerate(zip(before, counts, strict=True)):
            rows, total = slice(start, start + new), cached + new
            start += new
            if new == 0:
                continue
            seen = visible(new, total, causal, variant.get("sliding_window"))
            arguments = (q[rows], k[s][:total], v[s][:total], seen, SCALE)
            exact = attend(*arguments, **options)
            assert_close(out[rows], exact, attend(*arguments, **options, dtype=dtype))


def _through_fp8(rows: torch.Tensor, scale: float) -> torch.Tensor:
    return (rows.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


def test_what_vllm_reads(vllm_config):
    assert QuireBackend.get_supported_kernel_block_sizes()[0].base == PAGE
    assert not QuireBackend.is_mla()
    assert QuireBackend.supports_sink() and QuireBackend.supports_sliding_window()
    for asked, reason in (({"use_mla": True}, "MLA not supported"), ({"use_sparse": True}, "sparse not supported")):
        assert reason in _validate(**asked)
    assert _validate() == []
    assert "kv_cache_dtype not supported" in _validate(kv_cache_dtype="nvfp4")


def test_refusals_are_quires(vllm_config, default_dtype):
    default_dtype(torch.bfloat16)
    with pytest.raises(ValueError, match="quire: flash_attention: 'softcap' must be"):
        QuireAttention(HEADS, WIDTH, SCALE, KV_HEADS, logits_soft_cap=-5.0)
    with pytest.raises(ValueError, match="quire: flash_attention: 'q' must be"):
        QuireAttention(7, WIDTH, SCALE, 2)
    with pytest.raises(ValueError, match="quire: attention type encoder_only"):
        QuireAttention(HEADS, WIDTH, SCALE, KV_HEADS, attn_type="encoder_only")


def test_the_reference_is_not_served(vllm_config, default_dtype):
    """Where no kernel but the reference takes a problem, the start fails with the kernels' reasons."""
    default_dtype(torch.bfloat16)
    with quire.using(kernel="reference"):
        found = _validate()
    assert found and all("quire: flash_attention" in reason for reason in found)


def _validate(**changed) -> list[str]:
    asked = {
        "head_size": WIDTH,
        "dtype": torch.bfloat16,
        "kv_cache_dtype": "auto",
        "block_size": PAGE,
        "use_mla": False,
        "has_sink": False,
        "use_sparse": False,
        "use_mm_prefix": False,
        "use_per_head_quant_scales": False,
        "device_capability": None,
        "attn_type": "decoder",
    }
    return QuireBackend.validate_configuration(**{**asked, **changed})
