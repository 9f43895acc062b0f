# SPDX-License-Identifier: Apache-2.0
"""Values go through pickle and copy and come out equal; a packed weight only where it can still be read."""

import copy
import os
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import quire
import torch
from calls import make_calls
from problems import make_cache, offsets


def by_pickle(protocol):
    return lambda value: pickle.loads(pickle.dumps(value, protocol))


WAYS = {"copy": copy.copy, "deepcopy": copy.deepcopy} | {
    f"pickle {protocol}": by_pickle(protocol) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
}
ways = pytest.mark.parametrize("again", WAYS.values(), ids=WAYS.keys())

ROWS = [
    quire.RowFormat.uniform("bf16", 128),
    quire.RowFormat.scaled("i8", 96, 64, "f16"),
    quire.RowFormat.mla_fp8_token(),
    quire.RowFormat.mla_fp8_block(192, 32, 64, "f16"),
    quire.RowFormat.mla_fp8_e8m0(192, 32, 48, "f16"),
    quire.RowFormat.int4(96, 64, "bf16", has_zeros=True),
    quire.RowFormat([quire.RowPart("fp8_e4m3", 16, 24), quire.RowPart("bf16", 8)], 40),
]


@ways
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_row_formats(again, row):
    other = again(row)
    assert other == row
    assert hash(other) == hash(row)
    assert str(other) == str(row)
    assert [again(part) for part in row.parts] == row.parts
    assert len({hash(part) for part in row.parts}) == len(row.parts)


def test_row_formats_are_values():
    assert len({*ROWS, *(copy.copy(row) for row in ROWS)}) == len(ROWS)
    assert ROWS[0] != ROWS[1]
    assert ROWS[0] != "bf16"
    assert ROWS[0].parts[0] != 3


@pytest.mark.parametrize("state", [None, (), (1, 2, 3), ((), 8), ((3,), 8), "row"])
def test_a_state_that_is_none(state):
    with pytest.raises((ValueError, TypeError)) as raised:
        quire.RowFormat.__new__(quire.RowFormat).__setstate__(state)
    assert raised.value.op == "RowFormat"


@ways
def test_plans(again):
    plan = quire.supports("merge_states", np.zeros((2, 3, 4, 8), np.float32), np.zeros((2, 3, 4), np.float32))
    other = again(plan)
    assert str(other) == str(plan)
    assert (other.kernel, other.choices, bool(other)) == (plan.kernel, plan.choices, True)
    with quire.using(kernel="nothing"):
        refused = quire.supports("merge_states", np.zeros((2, 3, 4, 8), np.float32), np.zeros((2, 3, 4), np.float32))
    assert [str(refusal) for refusal in again(refused).refusals] == [str(refusal) for refusal in refused.refusals]
    assert refused.refusals


@ways
def test_masks_quants_and_plans_of_chunks(again):
    mask = quire.causal()
    for size in range(1, 64):
        mask = mask & quire.chunked(size)
    assert repr(again(mask)) == repr(mask)
    with pytest.raises(ValueError, match="got 65"):
        again(mask) & quire.causal()
    bounds = np.arange(6, dtype=np.int32).reshape(3, 2)
    own = again(quire.causal() & quire.key_intervals(bounds[:, 0], bounds[:, 1])).right
    assert (own.kind, own.begin.tolist(), own.end.tolist()) == ("key_intervals", [0, 2, 4], [1, 3, 5])
    quant = again(quire.Quant("int4", group_size=32, zeros=np.ones(3)))
    assert (quant.format, quant.group_size, quant.zeros.tolist()) == ("int4", 32, [1.0] * 3)
    arguments = make_calls()["mla_prefill_plan"]
    plan = quire.mla_prefill_plan(**arguments)
    np.testing.assert_array_equal(again(plan).buffer_row_offsets, plan.buffer_row_offsets)


@ways
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.uint8])
def test_caches(again, dtype, rng):
    cache = make_cache([3, 1], [2, 5], rng=rng, kv=1, heads=1, head_dim=40)
    cache.blocks = abs(np.nan_to_num(cache.blocks)).astype(dtype)
    cache.row_format = ROWS[-1] if dtype == np.uint8 else quire.RowFormat.uniform(
        {"float8_e4m3fn": "fp8_e4m3", "bfloat16": "bf16", "float16": "f16"}.get(cache.blocks.dtype.name, "f32"), 40
    )
    cache.max_seq_length = 7
    other = again(cache)
    assert repr(other) == repr(cache)
    assert (other.row_format, other.max_seq_length) == (cache.row_format, 7)
    for name in ("blocks", "cache_lengths", "page_table"):
        assert getattr(other, name).dtype == getattr(cache, name).dtype
        assert getattr(other, name).tobytes() == getattr(cache, name).tobytes()
        assert (getattr(other, name) is getattr(cache, name)) == (again is copy.copy)


@ways
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_static_scales_stay_static(again, framework, rng):
    cache = make_cache([1], [0], rng=rng, dtype=ml_dtypes.float8_e4m3fn)
    one = np.array([0.25, 0.5], np.float32).reshape(1, 2, 1, 1, 1, 1)
    shape = (*cache.blocks.shape[:5], 1)
    cache.scales = np.broadcast_to(one, shape) if framework == "numpy" else torch.from_numpy(one).expand(shape)
    other = again(cache)
    assert isinstance(other.scales, type(cache.scales))
    assert tuple(other.scales.shape) == shape
    quire.store(np.full((1, 2, 8), 8.0, np.float32), offsets([1]), other, 0)  # would write scales that are not static
    np.testing.assert_array_equal(np.asarray(other.scales), np.asarray(cache.scales))
    page = other.page_table[0, 0]
    np.testing.assert_array_equal(other.blocks[page, 0, 0, 0].astype(np.float32), np.full((2, 8), 32.0))


N, HIDDEN = 40, 256


def weights(rng):
    codes = rng.integers(0, 16, (N, HIDDEN), dtype=np.uint8)
    scale = rng.uniform(0.01, 0.1, (N, HIDDEN // 64)).astype(np.float16)
    quant = quire.Quant("int4", group_size=64, perm=rng.permutation(HIDDEN).astype(np.int32))
    dense = rng.standard_normal((N, HIDDEN)).astype(np.float32)
    fp8 = dense.astype(ml_dtypes.float8_e4m3fn)
    return {
        "f32": quire.pack_weight(dense),
        "bf16": quire.pack_weight(dense.astype(ml_dtypes.bfloat16)),
        "fp8": quire.pack_weight(fp8, weight_scale=np.ones((1, 2), np.float32)),
        "int4": quire.pack_weight(quire.pack_int4(codes), weight_scale=scale, quant=quant),
    }


def project(weight):
    cache = make_cache([2, 1], [0, 0], rng=np.random.default_rng(3), heads=1, head_dim=8, page_size=4, layers=1)
    x = np.random.default_rng(4).standard_normal((3, HIDDEN)).astype(np.float32)
    q = quire.fused_qkv_matmul(x, offsets([2, 1]), weight, cache, 0)
    return np.concatenate([q.ravel(), cache.blocks.ravel()])


@ways
@pytest.mark.parametrize("kind", ["f32", "bf16", "fp8", "int4"])
def test_packed_weights(again, kind, rng):
    packed = weights(rng)[kind]
    other = again(packed)
    assert (other.shape, other.format, other.packing, other.nbytes) == (
        packed.shape, packed.format, packed.packing, packed.nbytes
    )
    np.testing.assert_array_equal(project(other), project(packed))


# Of a state: version, format, packing, group_size, rows, columns, dtype, scale_dtype, scale_group, has_zeros, has_perm,
# storage.
@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "0.0.9", r"'version' must be .*pack the weight again\), got '0.0.9'"),
        (0, None, "'version'"),
        (1, "int5", "'format'"),
        (2, "panels_48", "'packing' must be .* this version has, got 'panels_48'"),
        (2, "fragments_64", "'weight' must be packed as a kernel of this machine reads it: .*, got one packed as fragments_64"),
        (2, "none", "'weight' must be packed as a kernel of this machine reads it"),
        (3, 0, "'weight.group_size'"),
        (4, 2**40, "'storage' must be u8 of at least"),
        (4, 2**62, "'weight' must be packed from at most"),
        (5, -1, "'columns'"),
        (6, "i33", "'dtype'"),
        (7, "i32", "packed from the dtypes of int4"),
        (8, 5, "a scale for 0"),
        (9, 1, "'has_zeros'"),
        (11, b"", "'storage'"),
        (11, None, "'storage'"),
    ],
)
def test_packed_weights_that_cannot_be_read(place, value, message, rng):
    state = list(weights(rng)["int4"].__getstate__())
    state[place] = value
    with pytest.raises((ValueError, TypeError), match=f"^PackedWeight: .*{message}"):
        quire.PackedWeight.__new__(quire.PackedWeight).__setstate__(tuple(state))


def test_a_damaged_permutation(rng):
    state = list(weights(rng)["int4"].__getstate__())
    state[-1] = state[-1][:-4] + (10**6).to_bytes(4, "little")
    with pytest.raises(ValueError, match=r"^PackedWeight: 'weight.perm' must be a permutation"):
        quire.PackedWeight.__new__(quire.PackedWeight).__setstate__(tuple(state))


def test_a_weight_packed_for_another_target(rng, tmp_path):
    """Every target that this machine has packs; a process with another one either reads it or says so."""
    path = tmp_path / "weight.pickle"
    read = "import pickle, sys, quire; print(pickle.load(open(sys.argv[1], 'rb')).packing)"
    targets = [name for name in ("amx", "avx512", "avx512_vnni", "avx2", "neon_bf16", "neon", "portable") if can_pack(name)]
    outcomes = set()
    for packer in targets:
        with quire.using(kernel=f"cpu/{packer}/"):
            packed = quire.pack_weight(rng.standard_normal((N, HIDDEN)).astype(np.float16))
        path.write_bytes(pickle.dumps(packed))
        for reader in targets:
            environment = os.environ | {"QUIRE_CPU_TARGET": reader, "PYTHONPATH": os.pathsep.join(sys.path)}
            done = subprocess.run([sys.executable, "-c", read, path], env=environment, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                assert done.stdout.strip() == packed.packing
            else:
                assert "PackedWeight: 'weight' must be packed as a kernel of this machine reads it" in done.stderr
                assert f"got one packed as {packed.packing}" in done.stderr
            outcomes.add((packer == reader, done.returncode))
    assert (True, 0) in outcomes
    assert (True, 1) not in outcomes


def can_pack(target):
    try:
        with quire.using(kernel=f"cpu/{target}/"):
            quire.pack_weight(np.zeros((8, 32), np.float16))
    except NotImplementedError:
        return False
    return True


def test_a_weight_in_an_array_of_the_callers(rng):
    """As on a GPU: the array itself is what is pickled."""
    packed = weights(rng)["int4"]
    state = packed.__getstate__()
    raw = np.empty(len(state[-1]) + 64, np.uint8)
    storage = raw[-raw.ctypes.data % 64 :][: len(state[-1])]
    storage[:] = np.frombuffer(state[-1], np.uint8)
    other = quire.PackedWeight.__new__(quire.PackedWeight)
    other.__setstate__((*state[:-1], storage))
    assert other.__getstate__()[-1] is storage
    np.testing.assert_array_equal(project(other), project(packed))
