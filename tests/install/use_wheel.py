# SPDX-License-Identifier: Apache-2.0
"""What a user of the wheel does first, with numpy, and with torch where that is there.

    use_wheel.py absent|present BACKENDS

BACKENDS: those that the wheel's library was built with, such as "reference cpu cuda". There may be no driver here.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np

import quire

package = Path(quire.__file__).resolve()
assert package.is_relative_to(Path(sys.prefix).resolve()), f"{package} is not that of {sys.prefix}"
assert (importlib.util.find_spec("torch") is not None) == (sys.argv[1] == "present"), f"torch should be {sys.argv[1]}"
assert quire.info()["backends"] == sys.argv[2].split(), quire.info()

keys = quire.row_offsets(np.array([0, 2, 3], np.uint32), np.array([5, 7], np.uint32))
assert keys.tolist() == [0, 7, 15], keys

pages, page_size, heads, head_dim = 4, 16, 2, 64
random = np.random.default_rng(1)
blocks = random.standard_normal((pages, 2, 1, page_size, heads, head_dim), np.float32)
lengths = np.array([20], np.uint32)
table = np.array([[3, 1]], np.uint32)
offsets = np.array([0, 1], np.uint32)
q = random.standard_normal((1, heads, head_dim), np.float32)
out = quire.flash_attention(q, offsets, quire.PagedKVCache(blocks, lengths, table), 0)
rows = np.concatenate([blocks[3, :, 0], blocks[1, :, 0]], axis=1)[:, :21].astype(np.float64)
scores = np.einsum("hd,thd->ht", q[0], rows[0]) / np.sqrt(head_dim)
weights = np.exp(scores - scores.max(axis=1, keepdims=True))
expected = np.einsum("ht,thd->hd", weights / weights.sum(axis=1, keepdims=True), rows[1])
assert np.abs(out[0] - expected).max() < 1e-5

try:
    quire.row_offsets(np.array([0, 2, 3], np.float32), np.array([5, 7], np.uint32))
except TypeError as error:
    assert error.op == "row_offsets", error.op
else:
    raise AssertionError("float32 row offsets were taken")

if sys.argv[1] == "present":
    import torch

    tensors = [torch.from_numpy(array.view(np.int32)) for array in (lengths, table, offsets)]
    cache = quire.PagedKVCache(torch.from_numpy(blocks), tensors[0], tensors[1])
    again = quire.flash_attention(torch.from_numpy(q), tensors[2], cache, 0)
    assert isinstance(again, torch.Tensor) and np.array_equal(again.numpy(), out)
print(f"quire {quire.__version__} ({sys.argv[2]}) on Python {sys.version.split()[0]}, torch {sys.argv[1]}: ok")
