# SPDX-License-Identifier: Apache-2.0
"""Settings of every test here, and of the engines that they start."""

from __future__ import annotations

import os

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch


@pytest.fixture
def vllm_config():
    """A configuration in force, as while vLLM builds a layer."""
    from vllm.config import VllmConfig, set_current_vllm_config

    config = VllmConfig()
    with set_current_vllm_config(config):
        yield config


@pytest.fixture
def default_dtype():
    """torch's default dtype is the model's while vLLM builds it; here it is put back afterwards."""
    before = torch.get_default_dtype()
    yield torch.set_default_dtype
    torch.set_default_dtype(before)
