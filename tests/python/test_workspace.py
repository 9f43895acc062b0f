# SPDX-License-Identifier: Apache-2.0
"""Scratch: the caller's, or the framework's for the length of a GPU call."""

from types import SimpleNamespace

import numpy as np
import pytest
import quire
from problems import make_cache, offsets
from quire import _call


@pytest.fixture
def call(rng):
    cache = make_cache([3], [200], rng=rng)
    q = rng.standard_normal((3, 2, 8)).astype(np.float32)
    return q, offsets([3]), cache, 0


class FakeGpu:
    """The extension module's two entry points of flash_attention, as on a GPU: the kernel needs scratch."""

    needed = 4096

    def __init__(self, monkeypatch):
        self.taken = []  # (shape, dtype) asked of the framework
        self.contexts = []  # that ops ran with
        monkeypatch.setattr(_call, "is_on_gpu", lambda array: True)
        monkeypatch.setattr(_call, "empty", self.empty)
        plan = SimpleNamespace(workspace_bytes=self.needed)
        monkeypatch.setattr(_call._quire, "plan_flash_attention", lambda context, **_: plan)
        monkeypatch.setattr(_call._quire, "flash_attention", lambda context, **_: self.contexts.append(context))

    def empty(self, like, shape, dtype):
        self.taken.append((tuple(shape), dtype))
        return np.empty(shape, np.uint8)


def test_a_given_workspace_changes_no_result(call):
    expected = quire.flash_attention(*call)
    with quire.using(workspace=np.empty(1 << 16, np.uint8)):
        np.testing.assert_array_equal(quire.flash_attention(*call), expected)


def test_gpu_calls_get_what_the_plan_asks_for(call, monkeypatch):
    gpu = FakeGpu(monkeypatch)
    quire.flash_attention(*call)
    assert gpu.taken == [((gpu.needed,), "u8")]
    assert [context.workspace_bytes for context in gpu.contexts] == [gpu.needed]


def test_a_given_workspace_is_preferred_to_the_frameworks(call, monkeypatch):
    gpu = FakeGpu(monkeypatch)
    with quire.using(workspace=np.empty(5000, np.uint8)):
        quire.flash_attention(*call)
    assert gpu.taken == []
    assert [context.workspace_bytes for context in gpu.contexts] == [5000]


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
    assert gpu.taken == []
    assert [context.workspace_bytes for context in gpu.contexts] == [0]
