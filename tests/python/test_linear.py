# SPDX-License-Identifier: Apache-2.0
"""linear beside torch's own and gguf's dequantizer, and beside the columns of fused_qkv_matmul."""

import gguf
import ml_dtypes
import numpy as np
import pytest
import quire
import torch
from outside import seeded
from problems import make_cache, offsets, round_once
from test_quantized_weights import GGUF_TYPES, N, check, random_blocks

SHAPES = [(1, 576, 576), (7, 1536, 576), (5, 37, 51), (3, 1, 8), (2, 4099, 64), (70, 160, 128)]  # tokens, N, hidden


def operands(tokens, rows, hidden, dtype):
    generator = seeded(tokens + rows)
    x = torch.randn(tokens, hidden, generator=generator).to(dtype)
    weight = (torch.randn(rows, hidden, generator=generator) * hidden**-0.5).to(dtype)
    return x, weight, torch.randn(rows, generator=generator).to(dtype)


def assert_close(ours, x, weight, bias):
    """One rounding of an fp32 sum: within an ulp of the result, and what sums in fp32 lose."""
    parts = [None if part is None else part.double() for part in (x, weight, bias)]
    exact = torch.nn.functional.linear(*parts)
    size = torch.nn.functional.linear(*[None if part is None else part.abs() for part in parts])
    ulp = torch.finfo(ours.dtype).eps
    assert ours.dtype == x.dtype and ours.shape == exact.shape
    assert ((ours.double() - exact).abs() <= ulp * exact.abs() + 2e-6 * size).all()


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("tokens", "rows", "hidden"), SHAPES)
def test_torch(tokens, rows, hidden, dtype, with_bias):
    x, weight, bias = operands(tokens, rows, hidden, dtype)
    bias = bias if with_bias else None
    ours = quire.linear(x, weight, bias)
    assert_close(ours, x, weight, bias)
    if x.device.type == "cpu":
        assert torch.equal(quire.linear(x, quire.pack_weight(weight), bias), ours)


def test_views_with_gaps():
    """x, weight and out are columns of wider tensors; what lies between the rows of out stays."""
    x, weight, bias = operands(5, 48, 64, torch.float32)
    wide_x, wide_weight, wide_out = (torch.full((len(part), 100), float("nan")) for part in (x, weight, x))
    wide_x[:, 7:71], wide_weight[:, 3:67] = x, weight
    out = wide_out[:, 10:58]
    assert quire.linear(wide_x[:, 7:71], wide_weight[:, 3:67], bias, out=out) is out
    assert torch.equal(out, quire.linear(x, weight, bias))
    assert wide_out.isnan().sum() == 5 * 52


def test_results_of_another_dtype():
    x, weight, bias = operands(3, 40, 64, torch.bfloat16)
    out = torch.empty(3, 40, dtype=torch.float32)
    quire.linear(x, weight, bias.float(), out=out)
    exact = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)


def test_bf16_rounds_once(rng):
    x, weight = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((4, 16), (30, 16)))
    bias = rng.standard_normal(30).astype(np.float32)
    y = x.astype(np.float64) @ weight.astype(np.float64).T + bias
    np.testing.assert_array_equal(quire.linear(x, weight, bias), round_once(y, ml_dtypes.bfloat16))


@pytest.mark.parametrize("weight_scale", [(1, 1), (70, 1), (1, 2)], ids=["tensor", "channel", "block"])
@pytest.mark.parametrize("input_scale", [(1, 1), (5, 1), (5, 2)], ids=["tensor", "token", "block"])
def test_fp8(weight_scale, input_scale, rng):
    x, weight = (rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((5, 200), (70, 200)))
    scales = [rng.uniform(0.5, 2, shape).astype(np.float32) for shape in (input_scale, weight_scale)]
    out = np.empty((5, 70), np.float32)
    quire.linear(x, weight, input_scale=scales[0], weight_scale=scales[1], out=out)
    wide = [np.repeat(scale.astype(np.float64), 128, axis=1)[:, :200] for scale in scales]
    wide = [scale if scale.shape[1] == 200 else scale[:, :1] for scale in wide]
    check(out, x.astype(np.float64) * wide[0], weight.astype(np.float64) * wide[1])


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("name", GGUF_TYPES)
def test_gguf(name, is_packed, rng):
    kind, columns, _, _ = GGUF_TYPES[name]
    hidden = 3 * columns
    weight, quant = random_blocks(name, hidden, rng), quire.Quant(name)
    x = rng.standard_normal((3, hidden)).astype(np.float32)
    y = quire.linear(x, quire.pack_weight(weight, quant=quant)) if is_packed else quire.linear(x, weight, quant=quant)
    check(y, x, gguf.dequantize(weight, kind))


@pytest.mark.parametrize("name", GGUF_TYPES)
def test_gguf_bit_by_bit(name, rng):
    """x is the identity: every sum has one term, a value of the weight."""
    kind, columns, _, _ = GGUF_TYPES[name]
    weight = random_blocks(name, columns, rng)
    y = quire.linear(np.eye(columns, dtype=np.float32), weight, quant=quire.Quant(name))
    np.testing.assert_array_equal(y, gguf.dequantize(weight, kind).T)


def weights(rng):
    """name → weight [40, 64] and its arguments."""
    words = lambda *shape: rng.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32)  # noqa: E731
    scale = lambda *shape: rng.uniform(0.01, 0.1, shape).astype(np.float16)  # noqa: E731
    zeros = words(2, N // 8)
    blocks = random_blocks("q4_1", 64, rng)
    perm = rng.permutation(64).astype(np.int32)
    codes = quire.pack_int4(rng.integers(0, 16, (N, 64), dtype=np.uint8))
    return {
        "f32": (rng.standard_normal((N, 64)).astype(np.float32), {}),
        "bf16": (rng.standard_normal((N, 64)).astype(ml_dtypes.bfloat16), {}),
        "int4": (codes, {"weight_scale": scale(N, 2), "quant": quire.Quant("int4", 32, perm=perm)}),
        "gptq": (words(8, N), {"weight_scale": scale(2, N), "quant": quire.Quant("gptq", 32, zeros=zeros)}),
        "gptq_v2": (words(8, N), {"weight_scale": scale(2, N), "quant": quire.Quant("gptq_v2", 32, zeros=zeros)}),
        "awq": (words(64, N // 8), {"weight_scale": scale(2, N), "quant": quire.Quant("awq", 32, zeros=zeros)}),
        "q4_1": (blocks, {"quant": quire.Quant("q4_1")}),
    }


# kernel, whether the weight is packed, activations: the reference reads plain weights, the CPU rounds x for packed ones.
WAYS = [("cpu", False, "exact"), ("cpu", True, "exact"), ("reference", False, "exact")]
WAYS_INT8 = [("cpu", True, "int8"), ("reference", False, "int8")]
EVERY_WAY = [
    (name, *way)
    for name in weights(np.random.default_rng(0))
    for way in (WAYS if name in ("f32", "bf16") else WAYS + WAYS_INT8)
]


@pytest.mark.parametrize(("name", "kernel", "is_packed", "activations"), EVERY_WAY)
def test_columns_are_those_of_fused_qkv_matmul(name, kernel, is_packed, activations, rng):
    """Q, K and V of a cache of f32, side by side: the same bits."""
    weight, arguments = weights(rng)[name]
    if is_packed:
        weight, arguments = quire.pack_weight(weight, **arguments), {}
    x, bias = rng.standard_normal((3, 64)).astype(np.float32), rng.standard_normal(N).astype(np.float32)
    cache = make_cache([3], [0], rng=rng, heads=1, head_dim=8, page_size=4, layers=1)
    arguments = arguments | {"bias": bias, "activations": activations}
    with quire.using(kernel=kernel):
        q = quire.fused_qkv_matmul(x, offsets([3]), weight, cache, 0, **arguments)
        y = quire.linear(x, weight, **arguments)
    kv = cache.blocks[cache.page_table[0, 0], :, 0, :3, 0]
    np.testing.assert_array_equal(y, np.concatenate([q, *kv], axis=1))


@pytest.mark.parametrize(("tokens", "rows"), [(0, 8), (3, 0), (0, 0)])
def test_nothing_to_do(tokens, rows):
    x, weight = torch.ones(tokens, 16), torch.ones(rows, 16)
    assert quire.linear(x, weight, torch.ones(rows)).shape == (tokens, rows)


def test_planned_calls(rng):
    x, weight = rng.standard_normal((2, 32)).astype(np.float32), rng.standard_normal((24, 32)).astype(np.float32)
    step = quire.plan("linear", x, weight)
    np.testing.assert_array_equal(step(), quire.linear(x, weight))
    np.testing.assert_array_equal(step(x=2 * x), quire.linear(2 * x, weight))
    assert step.plan.op == "linear" and step.plan.kernel.endswith("/linear")
    assert quire.supports("linear", x, weight).kernel == step.plan.kernel
    with pytest.raises(ValueError, match="linear"):
        step(x=np.ones((3, 32), np.float32), out=np.ones((3, 24), np.float32))


def test_threads_change_no_bit(rng):
    x, weight = rng.standard_normal((9, 96)).astype(np.float32), rng.standard_normal((1000, 96)).astype(np.float32)
    expected = quire.linear(x, weight)
    for num_threads in (1, 2, 3, 7):
        with quire.using(num_threads=num_threads):
            np.testing.assert_array_equal(quire.linear(x, weight), expected)


def test_errors(rng):
    x = rng.standard_normal((2, 16)).astype(np.float32)
    with pytest.raises(ValueError, match=r"^linear: 'weight' must be f32\[16, 16\], got f32\[16, 24\]$"):
        quire.linear(x, np.ones((16, 24), np.float32))
    with pytest.raises(ValueError, match=r"^linear: 'out' must be f32\[2, N\], got f32\[3, 8\]$"):
        quire.linear(x, np.ones((8, 16), np.float32), out=np.ones((3, 8), np.float32))
    with pytest.raises(NotImplementedError, match="int8 activations are multiplied with packed weights only"):
        weight = random_blocks("q8_0", 32, rng)
        with quire.using(kernel="cpu"):
            quire.linear(np.ones((2, 32), np.float32), weight, quant=quire.Quant("q8_0"), activations="int8")
