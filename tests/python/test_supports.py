# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np
import pytest
import quire
from calls import make_calls
from problems import make_cache, offsets
from quire import _quire


def arguments(rng):
    cache = make_cache([3], [2], rng=rng)
    return np.zeros((3, 2, 8), np.float32), offsets([3]), cache, 0


def test_the_plan_names_the_kernel(rng):
    plan = quire.supports("flash_attention", *arguments(rng), softcap=2.0)
    assert plan
    assert plan.supported
    assert plan.op == "flash_attention"
    assert plan.kernel.endswith("flash_attention")
    assert plan.workspace_bytes >= 0
    assert isinstance(plan.choices, dict)
    assert plan.kernel in str(plan)


def test_nothing_runs(rng):
    cache = make_cache([2], [0], rng=rng, heads=1)
    before = cache.blocks.copy()
    out = np.full((2, 8), 3, np.float32)
    plan = quire.supports(
        "fused_qkv_matmul", np.ones((2, 16), np.float32), offsets([2]), np.ones((24, 16), np.float32), cache, 0, out=out
    )
    assert plan
    np.testing.assert_array_equal(cache.blocks, before)
    assert (out == 3).all()
    quire.fused_qkv_matmul(
        np.ones((2, 16), np.float32), offsets([2]), np.ones((24, 16), np.float32), cache, 0, out=out
    )
    assert (out == 16).all()  # the same call, run: planning ended with supports


def test_no_kernel_gives_reasons_and_the_nearest_problem(rng):
    with quire.using(kernel="quantum"):
        plan = quire.supports("flash_attention", *arguments(rng))
    assert not plan
    assert plan.kernel == ""
    assert plan.refusals
    assert all(refusal.kernel and refusal.reason for refusal in plan.refusals)
    assert plan.nearest


def test_invalid_arguments_raise_as_in_the_op(rng):
    q, row_offsets, cache, _ = arguments(rng)
    with pytest.raises(ValueError, match="flash_attention: 'layer' must be"):
        quire.supports("flash_attention", q, row_offsets, cache, 7)
    quire.flash_attention(q, row_offsets, cache, 0)  # planning ended with the error


def test_unknown_op():
    with pytest.raises(ValueError, match="supports: 'op' must be one of .*, got 'flash'"):
        quire.supports("flash")


@pytest.mark.parametrize("op", quire.info()["ops"])
def test_every_op_has_a_plan_in_the_extension(op):
    from quire import _quire

    assert callable(getattr(_quire, op))
    assert callable(getattr(_quire, "plan_" + op))
    assert callable(getattr(quire, op))


def test_a_plan_of_chunks_has_a_kernel_too():
    arguments = make_calls()["mla_prefill_plan"]
    plan = quire.supports("mla_prefill_plan", **arguments)
    assert plan.op == "mla_prefill_plan"
    assert plan.kernel.endswith("mla_prefill_plan")
    with quire.using(kernel="reference"):
        assert quire.supports("mla_prefill_plan", **arguments).kernel == "reference/mla_prefill_plan"
    with pytest.raises(ValueError, match="mla_prefill_plan: 'layer' must be"):
        quire.supports("mla_prefill_plan", **arguments | {"layer": 7})


def test_an_op_that_makes_its_own_plan_of_chunks_is_the_one_planned():
    arguments = make_calls()["mla_prefill"]
    plan = quire.supports("mla_prefill", **arguments)
    assert plan.op == "mla_prefill"
    chunks = quire.mla_prefill_plan(*(arguments[name] for name in ("row_offsets", "cache", "layer")))
    assert str(plan) == str(quire.supports("mla_prefill", **arguments, plan=chunks))


def test_rms_norm_sides_have_their_own_plan(rng):
    _, row_offsets, cache, _ = arguments(rng)
    gamma = np.ones(8, np.float32)
    for op in ("rms_norm_key", "rms_norm_value"):
        assert quire.supports(op, row_offsets, cache, 0, gamma=gamma)


def test_a_forced_kernel_is_the_one_that_is_planned(rng):
    with quire.using(kernel="reference"):
        assert quire.supports("flash_attention", *arguments(rng)).kernel.startswith("reference")


def test_info():
    info = quire.info()
    assert info["version"] == quire.__version__
    assert "flash_attention" in info["ops"]


def test_info_names_the_backends_that_are_inside():
    # GPU code lies in an ELF section of this name, which stripping keeps: no constant of ours that a compiler may fold.
    has_gpu_code = b".nv_fatbin" in Path(_quire.__file__).read_bytes()
    expected = ["reference", "cpu", "cuda"] if has_gpu_code else ["reference", "cpu"]
    assert quire.info()["backends"] == expected
