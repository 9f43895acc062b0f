# SPDX-License-Identifier: Apache-2.0
"""The backend that the model at hand needs, under one name for the user.

vLLM resolves `quire_vllm.chosen.Backend` while it builds a layer: what the module gives then is the class of the
kind of attention that this model has.
"""

from __future__ import annotations

from typing import Any

from vllm.config import get_current_vllm_config


def __getattr__(name: str) -> Any:
    if name != "Backend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    model = get_current_vllm_config().model_config
    if model is None or not model.use_mla:
        from quire_vllm.attention import QuireBackend

        return QuireBackend
    if hasattr(model.hf_text_config, "index_topk"):
        from quire_vllm.sparse import QuireSparseMLABackend

        return QuireSparseMLABackend
    from quire_vllm.latent import QuireMLABackend

    return QuireMLABackend
