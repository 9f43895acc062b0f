# SPDX-License-Identifier: Apache-2.0
"""store_index_keys and quantize_index_queries against torch: layer_norm, complex numbers for the rotation, a product
with Hadamard's matrix, and a quantizer by the definition."""

import ml_dtypes
import numpy as np
import pytest
import quire
import torch
from problems import make_cache, offsets

E4M3 = ml_dtypes.float8_e4m3fn
NEW, CACHED = [5, 0, 3, 1], [6, 2, 0, 11]
POSITIONS = [old + i for new, old in zip(NEW, CACHED) for i in range(new)]
SLACK = 2.0**-16  # of a row's largest number: what fp32 between the steps may cost


def make_index_cache(rng, columns):
    cache = make_cache(NEW, CACHED, rng=rng, heads=1, head_dim=columns, kv=1, dtype=E4M3)
    cache.scales = np.full((*cache.blocks.shape[:5], 1), np.nan, np.float32)
    return cache


def make_freqs(rope, positions=32):
    angles = np.arange(positions)[:, None] * 100.0 ** (-np.arange(rope // 2) / (rope // 2))
    return np.stack((np.cos(angles), np.sin(angles)), axis=-1).reshape(positions, rope).astype(np.float32)


def rotated(x: torch.Tensor, freqs: np.ndarray, interleaved: bool) -> torch.Tensor:
    """x [tokens, heads, columns]; complex numbers instead of the pairs."""
    rope = freqs.shape[1]
    turn = torch.view_as_complex(torch.tensor(freqs[POSITIONS], dtype=torch.float64).reshape(-1, 1, rope // 2, 2))
    part = x[..., :rope]
    if interleaved:
        pairs = part.reshape(*part.shape[:-1], rope // 2, 2)
    else:
        pairs = part.reshape(*part.shape[:-1], 2, rope // 2).transpose(-1, -2)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
    if not interleaved:
        turned = turned.transpose(-1, -2)
    return torch.cat((turned.reshape(part.shape), x[..., rope:]), dim=-1)


def transformed(x: torch.Tensor) -> torch.Tensor:
    """By Sylvester's construction of the matrix: H(2n) = [[H(n), H(n)], [H(n), -H(n)]]."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while matrix.shape[0] < x.shape[-1]:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return x @ matrix * x.shape[-1] ** -0.5


def assert_codes(codes, scale, exact, power_of_two):
    """codes [rows, columns] and scale [rows] are those of rows within SLACK of the exact ones."""
    amax = exact.abs().amax(-1)
    wanted = amax / 448
    if power_of_two:
        wanted = torch.exp2(torch.ceil(torch.log2(wanted.clamp(min=1e-10))))
    torch.testing.assert_close(scale.double(), wanted, rtol=SLACK, atol=0)
    slack = SLACK * amax[:, None]
    low, high = ((exact + sign * slack) / scale[:, None].double() for sign in (-1, 1))
    assert (codes >= low.clamp(-448, 448).float().to(torch.float8_e4m3fn).double()).all()
    assert (codes <= high.clamp(-448, 448).float().to(torch.float8_e4m3fn).double()).all()


def stored_rows(cache, layer):
    """Codes and scales of the new tokens' keys, in their order."""
    codes, scales, size = [], [], cache.page_size
    for sequence, (new, old) in enumerate(zip(NEW, CACHED)):
        for position in range(old, old + new):
            page, row = cache.page_table[sequence, position // size], position % size
            codes.append(np.asarray(cache.blocks)[page, 0, layer, row, 0].astype(np.float64))
            scales.append(np.asarray(cache.scales)[page, 0, layer, row, 0, 0])
    return torch.tensor(np.stack(codes)), torch.tensor(np.array(scales))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("hadamard", [False, True])
@pytest.mark.parametrize("power_of_two", [False, True])
def test_keys_against_torch(dtype, interleaved, hadamard, power_of_two, rng):
    columns, rope = 64, 32
    cache = make_index_cache(rng, columns)
    x = (rng.standard_normal((sum(NEW), columns)) + 0.5).astype(dtype)
    weight, bias = (rng.standard_normal(columns).astype(np.float32) for _ in range(2))
    freqs = make_freqs(rope)
    quire.store_index_keys(
        x,
        offsets(NEW),
        cache,
        1,
        norm_weight=weight,
        norm_bias=bias,
        epsilon=1e-5,
        freqs_cis=freqs,
        interleaved=interleaved,
        hadamard=hadamard,
        power_of_two_scale=power_of_two,
    )
    exact = torch.nn.functional.layer_norm(
        torch.tensor(x.astype(np.float64)), (columns,), torch.tensor(weight).double(), torch.tensor(bias).double(), 1e-5
    )
    exact = rotated(exact[:, None], freqs, interleaved)[:, 0]
    exact = transformed(exact) if hadamard else exact
    assert_codes(*stored_rows(cache, 1), exact, power_of_two)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("hadamard", [False, True])
@pytest.mark.parametrize("power_of_two", [False, True])
def test_queries_against_torch(dtype, interleaved, hadamard, power_of_two, rng):
    columns, rope, heads, factor = 32, 16, 3, 0.17
    cache = make_index_cache(rng, columns)
    q = rng.standard_normal((sum(NEW), heads, columns)).astype(dtype)
    weights = rng.standard_normal((sum(NEW), heads)).astype(dtype)
    freqs = make_freqs(rope)
    options = dict(freqs_cis=freqs, interleaved=interleaved, hadamard=hadamard, power_of_two_scale=power_of_two)
    codes, scale = quire.quantize_index_queries(q, offsets(NEW), cache, **options)
    exact = rotated(torch.tensor(q.astype(np.float64)), freqs, interleaved)
    exact = transformed(exact) if hadamard else exact
    codes = torch.tensor(codes.astype(np.float64))
    assert_codes(codes.reshape(-1, columns), torch.tensor(scale).flatten(), exact.reshape(-1, columns), power_of_two)
    again, q_scale = quire.quantize_index_queries(q, offsets(NEW), cache, weights=weights, factor=factor, **options)
    np.testing.assert_array_equal(again.astype(np.float64), codes.numpy())
    np.testing.assert_allclose(q_scale, scale * weights.astype(np.float32) * np.float32(factor), rtol=3e-7)


def test_a_hadamard_step_on_both_sides_changes_no_product(rng):
    columns = 128
    x = rng.standard_normal((sum(NEW), columns)).astype(np.float32)
    products = []
    for hadamard in (False, True):
        cache = make_index_cache(rng, columns)
        quire.store_index_keys(x, offsets(NEW), cache, 0, hadamard=hadamard)
        codes, scale = quire.quantize_index_queries(x[:, None], offsets(NEW), cache, hadamard=hadamard)
        keys, key_scales = stored_rows(cache, 0)
        queries = torch.tensor(codes[:, 0].astype(np.float64)) * torch.tensor(scale).double()
        products.append(queries @ (keys * key_scales[:, None].double()).T)
    lengths = np.linalg.norm(x, axis=-1)
    bound = 0.15 * lengths[:, None] * lengths[None]  # two fp8 roundings of at most 2^-4 each on either side
    assert (np.abs((products[0] - products[1]).numpy()) <= bound).all()


def test_tokens_without_a_page_are_dropped(rng):
    cache = make_index_cache(rng, 32)
    table = np.array(cache.page_table)
    table[0, 1] = 0xFFFFFFFF  # positions 4 to 7 of sequence 0
    cache.page_table = table
    before = np.array(cache.blocks).view(np.uint8)
    quire.store_index_keys(np.ones((sum(NEW), 32), np.float32), offsets(NEW), cache, 0)
    changed = (np.asarray(cache.blocks).view(np.uint8) != before).any(axis=(2, 4, 5))
    # sequence 0 keeps positions 8, 9, 10; sequences 2 and 3 all of theirs
    assert np.count_nonzero(~np.isnan(np.asarray(cache.scales)[:, 0, 0])) == 3 + 3 + 1
    assert changed.any()


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("norm_bias", {"norm_weight": np.ones(24, np.float32)}),
        ("hadamard", {"hadamard": True}),
        ("freqs_cis", {"freqs_cis": np.ones((32, 26), np.float32)}),
        ("epsilon", {"norm_weight": np.ones(24, np.float32), "norm_bias": np.ones(24, np.float32), "epsilon": 0.0}),
    ],
)
def test_errors_name_the_argument(argument, change, rng):
    cache = make_index_cache(rng, 24)
    with pytest.raises(ValueError, match=f"store_index_keys: '{argument}'") as error:
        quire.store_index_keys(np.ones((sum(NEW), 24), np.float32), offsets(NEW), cache, 0, **change)
    assert error.value.argument == argument
    assert np.isnan(np.asarray(cache.scales)).all()
