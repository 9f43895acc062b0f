# SPDX-License-Identifier: Apache-2.0
"""The names that vLLM knows Quire by."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest
from quire_vllm import register
from quire_vllm.registration import CLASSES, CPU_CLASSES, is_quire
from vllm.platforms import current_platform
from vllm.v1.attention.backends.registry import AttentionBackendEnum


@pytest.fixture(autouse=True)
def registered():
    register()
    register()


@pytest.mark.parametrize("name", [name for name, path in CLASSES.items() if "chosen" not in path])
def test_a_backend_has_its_own_name(name):
    """vLLM looks a layer's backend up by the name that its class gives."""
    assert AttentionBackendEnum[name].get_class().get_name() == name


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (SimpleNamespace(use_mla=False), "QUIRE_MHA"),
        (SimpleNamespace(use_mla=True, hf_text_config=SimpleNamespace()), "QUIRE_MLA"),
        (SimpleNamespace(use_mla=True, hf_text_config=SimpleNamespace(index_topk=4)), "QUIRE_MLA_SPARSE"),
    ],
)
@pytest.mark.parametrize("name", ["QUIRE", "CUSTOM"])
def test_one_name_for_what_the_model_needs(name, model, expected, vllm_config):
    vllm_config.model_config = model
    found = AttentionBackendEnum[name].get_class()
    assert found.get_name() == expected
    # The path that vLLM makes of the class leads to it again.
    module, qualname = found.full_cls_name()
    assert (module, qualname) == (found.__module__, found.__name__) and "chosen" not in module


@pytest.mark.parametrize("name", CLASSES)
def test_a_process_without_plugins_reads_it(name):
    """A configuration comes to vLLM's workers before they load plug-ins."""
    sent = pickle.dumps(AttentionBackendEnum[name])
    code = f"import pickle; print('read', pickle.loads({sent!r}).name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"read {name}\n" in done.stdout, done.stderr
    assert pickle.loads(sent) is AttentionBackendEnum[name]


def test_whose_it_is():
    assert all(is_quire(AttentionBackendEnum[name]) for name in CLASSES)
    assert not is_quire(AttentionBackendEnum.FLASH_ATTN) and not is_quire(None)


@pytest.mark.skipif(not current_platform.is_cpu(), reason="vLLM fixes the names on CPUs alone")
def test_cpu():
    assert all(is_quire(AttentionBackendEnum[name]) for name in CPU_CLASSES if name in AttentionBackendEnum.__members__)
