# SPDX-License-Identifier: Apache-2.0
"""Scratch: the caller's, or the framework's for the length of a GPU call."""

import numpy as np
import pytest
import quire
from problems import make_cache, offsets
from quire import _call, _tensor


@pytest.fixture
def call(rng):
    cache = make_cache([3], [200], rng=rng)
    q = rng.standard_normal((3, 2, 8)).astype(np.float32)
    return q, offsets([3]), cache, 0


class FakeGpu:
    """The extension module's entry point of flash_attention, as if its tensors were a GPU's."""

    def __init__(self, monkeypatch):
        self.calls = []  # (context, the tensor whose framework is to be asked for scratch)
        monkeypatch.setattr(_call, "is_on_gpu", lambda array: True)
        monkeypatch.setattr(
            _call._quire, "flash_attention", lambda context, like, arguments: self.calls.append((context, like))
        )


def test_a_given_workspace_changes_no_result(call):
    expected = quire.flash_attention(*call)
    with quire.using(workspace=np.empty(1 << 16, np.uint8)):
        np.testing.assert_array_equal(quire.flash_attention(*call), expected)


def test_gpu_calls_may_ask_the_framework_of_their_first_tensor(call, monkeypatch):
    gpu = FakeGpu(monkeypatch)
    quire.flash_attention(*call)
    [(context, like)] = gpu.calls
    assert context.workspace_bytes == 0
    assert like is call[0]


def test_a_given_workspace_is_preferred_to_the_frameworks(call, monkeypatch):
    gpu = FakeGpu(monkeypatch)
    with quire.using(workspace=np.empty(5000, np.uint8)):
        quire.flash_attention(*call)
    [(context, like)] = gpu.calls
    assert context.workspace_bytes == 5000
    assert like is None


def test_the_frameworks_scratch_is_its_own_array():
    memory, address = _tensor.scratch(np.zeros(3, np.float32), 4096)
    assert (memory.dtype, memory.nbytes) == (np.uint8, 4096)
    assert address == memory.ctypes.data
    torch = pytest.importorskip("torch")
    memory, address = _tensor.scratch(torch.zeros(3), 4096)
    assert (memory.dtype, memory.numel()) == (torch.uint8, 4096)
    assert address == memory.data_ptr()


def test_a_workspace_with_gaps_is_refused():
    with pytest.raises(ValueError, match="^using: 'workspace' must be a dense"), quire.using(
        workspace=np.empty((8, 8), np.uint8)[:, ::2]
    ):
        pass


def test_a_workspace_elsewhere_is_refused(call):
    torch = pytest.importorskip("torch")
    with quire.using(workspace=torch.empty(5000, device="meta")), pytest.raises(
        TypeError, match="^using: 'workspace' must be on cpu like the tensors, got on meta"
    ):
        quire.flash_attention(*call)


def test_cpu_calls_take_nothing(call, monkeypatch):
    gpu = FakeGpu(monkeypatch)
    monkeypatch.setattr(_call, "is_on_gpu", lambda array: False)
    quire.flash_attention(*call)
    [(context, like)] = gpu.calls
    assert context.workspace_bytes == 0
    assert like is None
