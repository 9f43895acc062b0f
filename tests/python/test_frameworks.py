# SPDX-License-Identifier: Apache-2.0
"""Results come in the caller's framework, and every framework gets the same bits."""

import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
import quire
import torch
from problems import make_cache, offsets

NUMPY_TO_TORCH = {
    np.dtype(ml_dtypes.bfloat16): (np.int16, torch.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn): (np.uint8, torch.float8_e4m3fn),
    np.dtype(np.uint32): (np.int32, torch.uint32),
}


def to_torch(array):
    """The same memory as a torch tensor."""
    if array.dtype in NUMPY_TO_TORCH:
        bits, dtype = NUMPY_TO_TORCH[array.dtype]
        return torch.from_numpy(array.view(bits)).view(dtype)
    return torch.from_numpy(array)


def bits_of(result):
    return result.view(torch.uint8).numpy().tobytes() if isinstance(result, torch.Tensor) else result.tobytes()


def cache_in_torch(cache, index_dtype=torch.uint32):
    return quire.PagedKVCache(
        to_torch(cache.blocks),
        to_torch(cache.cache_lengths).view(index_dtype),
        to_torch(cache.page_table).view(index_dtype),
        None if cache.scales is None else to_torch(cache.scales),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("index_dtype", [torch.uint32, torch.int32])
def test_flash_attention_in_torch_is_the_same_bits(dtype, index_dtype, rng):
    cache = make_cache([3, 1], [4, 6], rng=rng, dtype=dtype)
    q = rng.standard_normal((4, 4, 8)).astype(dtype)
    expected, expected_lse = quire.flash_attention(q, offsets([3, 1]), cache, 1, return_lse=True)
    row_offsets = to_torch(offsets([3, 1])).view(index_dtype)
    out, lse = quire.flash_attention(
        to_torch(q), row_offsets, cache_in_torch(cache, index_dtype), 1, return_lse=True
    )
    assert isinstance(out, torch.Tensor)
    assert out.dtype == to_torch(q).dtype
    assert lse.dtype == torch.float32
    assert bits_of(out) == bits_of(expected)
    assert bits_of(lse) == bits_of(expected_lse)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_fused_qkv_matmul_in_torch_is_the_same_bits(dtype, rng):
    cache = make_cache([3, 1], [4, 6], rng=rng, dtype=dtype)
    x = rng.standard_normal((4, 16)).astype(dtype)
    weight = rng.standard_normal((24 + 32, 16)).astype(dtype)
    twin = quire.PagedKVCache(cache.blocks.copy(), cache.cache_lengths, cache.page_table)
    expected = quire.fused_qkv_matmul(x, offsets([3, 1]), weight, cache, 0)
    out = quire.fused_qkv_matmul(
        to_torch(x), to_torch(offsets([3, 1])), torch.nn.Parameter(to_torch(weight)), cache_in_torch(twin), 0
    )
    assert bits_of(out) == bits_of(expected)
    assert twin.blocks.tobytes() == cache.blocks.tobytes()


def test_fp8_cache_in_torch(rng):
    cache = make_cache([3], [0], rng=rng, dtype=ml_dtypes.float8_e4m3fn)
    q = rng.standard_normal((3, 2, 8)).astype(np.float32)
    expected = quire.flash_attention(q, offsets([3]), cache, 0)
    out = quire.flash_attention(to_torch(q), to_torch(offsets([3])), cache_in_torch(cache), 0)
    assert bits_of(out) == bits_of(expected)


def test_fp8_input_gives_bf16_in_torch(rng):
    cache = make_cache([2], [0], rng=rng, heads=1)
    out = quire.fused_qkv_matmul(
        torch.zeros(2, 16).to(torch.float8_e4m3fn), to_torch(offsets([2])), torch.zeros(24, 16),
        cache_in_torch(cache), 0, input_scale=torch.ones(1, 1),
    )
    assert out.dtype == torch.bfloat16


def test_frameworks_mix(rng):
    """Only the device must be one: numpy tables serve torch activations."""
    cache = make_cache([3], [2], rng=rng)
    q = rng.standard_normal((3, 2, 8)).astype(np.float32)
    out = quire.flash_attention(to_torch(q), offsets([3]), cache, 0)
    assert isinstance(out, torch.Tensor)
    assert bits_of(out) == bits_of(quire.flash_attention(q, offsets([3]), cache, 0))


def test_out_is_used_and_returned(rng):
    cache = make_cache([3], [2], rng=rng)
    q = rng.standard_normal((3, 2, 8)).astype(np.float32)
    expected = quire.flash_attention(q, offsets([3]), cache, 0)
    wide = np.full((3, 2, 20), 9, np.float32)
    out = wide[:, :, 4:12]
    assert quire.flash_attention(q, offsets([3]), cache, 0, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert (wide[:, :, :4] == 9).all()
    assert (wide[:, :, 12:] == 9).all()


def test_out_of_another_dtype(rng):
    cache = make_cache([3], [2], rng=rng)
    q = rng.standard_normal((3, 2, 8)).astype(np.float32)
    out = quire.flash_attention(q, offsets([3]), cache, 0, out=np.empty((3, 2, 8), ml_dtypes.bfloat16))
    np.testing.assert_array_equal(out, quire.flash_attention(q, offsets([3]), cache, 0).astype(ml_dtypes.bfloat16))


def test_int32_page_table_with_minus_one(rng):
    cache = make_cache([1], [7], rng=rng)
    q = rng.standard_normal((1, 2, 8)).astype(np.float32)
    cache.page_table[0, 1] = 0xFFFFFFFF
    expected = quire.flash_attention(q, offsets([1]), cache, 0)
    cache.page_table = cache.page_table.view(np.int32)
    assert cache.page_table[0, 1] == -1
    np.testing.assert_array_equal(quire.flash_attention(q, offsets([1]), cache, 0), expected)


def test_results_do_not_depend_on_the_options(rng):
    cache = make_cache([3], [2], rng=rng)
    q = rng.standard_normal((3, 2, 8)).astype(np.float32)
    expected = quire.flash_attention(q, offsets([3]), cache, 0)
    for threads in (1, 2, 7):
        with quire.using(num_threads=threads):
            np.testing.assert_array_equal(quire.flash_attention(q, offsets([3]), cache, 0), expected)


def test_threads_of_python_may_call_at_once(rng):
    cache = make_cache([3], [2], rng=rng)
    q = rng.standard_normal((3, 2, 8)).astype(np.float32)
    expected = quire.flash_attention(q, offsets([3]), cache, 0)
    results = [None] * 4

    def work(slot):
        results[slot] = [quire.flash_attention(q, offsets([3]), cache, 0) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        for out in result:
            np.testing.assert_array_equal(out, expected)


def steps_beside(op):
    """How often this thread got to run while another one was inside `op`."""
    inside, done = threading.Event(), threading.Event()
    steps = 0

    def work():
        inside.set()
        op()
        done.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)  # nobody is forced to give the GIL away
    thread = threading.Thread(target=work)
    try:
        thread.start()
        inside.wait()
        while not done.wait(1e-4):
            steps += 1
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    return steps


def test_the_gil_is_released(rng):
    cache = make_cache([1024], [0], rng=rng, heads=4, head_dim=64, page_size=16, layers=1)
    q = rng.standard_normal((1024, 4, 64)).astype(np.float32)

    def attend():
        with quire.using(num_threads=1):
            quire.flash_attention(q, offsets([1024]), cache, 0)

    # Milliseconds of work on one core: on a busy machine a short call is over before this thread gets one.
    assert any(steps_beside(attend) for _ in range(20))
    assert not any(steps_beside(lambda: sum(range(10**5))) for _ in range(5))  # the test can tell


def run_python(code):
    """A fresh interpreter with the same packages."""
    environment = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_forked_child_computes_and_ends():
    code = """
import os, sys, signal
import numpy as np
import quire
states, lses = np.ones((2, 4096, 4, 64), np.float32), np.zeros((2, 4096, 4), np.float32)
def merge():
    with quire.using(num_threads=2):
        return quire.merge_states(states, lses)
expected = merge()  # the pool has threads now
child = os.fork()
if child == 0:
    signal.alarm(20)
    sys.exit(0 if (merge() == expected).all() else 3)
sys.exit(os.waitpid(child, 0)[1])
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("missing", ["torch", "ml_dtypes"])
def test_import_without_the_optional_packages(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None  # import raises ImportError
import numpy as np
import quire
print(quire.row_offsets(np.array([0, 2], np.uint32), np.array([3], np.uint32)).tolist())
assert {missing!r} not in [name for name, module in sys.modules.items() if module is not None]
"""
    done = run_python(code)
    assert done.stdout == "[0, 5]\n", done.stderr


def test_bf16_result_without_ml_dtypes_says_what_is_missing():
    code = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, quire
quire.quantize_fp8(np.zeros((1, 4), np.float32))
"""
    done = run_python(code)
    assert "needs the package ml_dtypes (or pass out=)" in done.stderr
