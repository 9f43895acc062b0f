# SPDX-License-Identifier: Apache-2.0
"""What vLLM knows Quire by: `--attention-backend QUIRE`, and the names of its three kinds."""

from __future__ import annotations

from functools import partial
from typing import Any

from vllm.platforms import current_platform
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

# QUIRE and CUSTOM (the one name that vLLM's command line knows without plug-ins) mean what the model needs.
CLASSES = {
    "QUIRE": "quire_vllm.chosen.Backend",
    "CUSTOM": "quire_vllm.chosen.Backend",
    "QUIRE_MHA": "quire_vllm.attention.QuireBackend",
    "QUIRE_MLA": "quire_vllm.latent.QuireMLABackend",
    "QUIRE_MLA_SPARSE": "quire_vllm.sparse.QuireSparseMLABackend",
}
# On the CPU vLLM has a fixed name for each kind and does not look at --attention-backend.
CPU_CLASSES = {
    "CPU_ATTN": "quire_vllm.attention.QuireBackend",
    "CPU_MLA": "quire_vllm.latent.QuireMLABackend",
    "AMX_MLA": "quire_vllm.latent.QuireMLABackend",
}


def register() -> None:
    """Add Quire's backends to vLLM's registry; more than once does no harm."""
    for name, path in CLASSES.items():
        register_backend(_member(name, path), path)
    if current_platform.is_cpu():
        for name, path in CPU_CLASSES.items():
            if name in AttentionBackendEnum.__members__:
                register_backend(AttentionBackendEnum[name], path)
    elif current_platform.is_cuda():
        from quire_vllm import indexer

        indexer.register()


def is_quire(backend: AttentionBackendEnum | None) -> bool:
    """Whether a backend that the user named is one of these."""
    return backend is not None and backend.is_overridden() and backend.get_path().startswith("quire_vllm.")


def named(name: str) -> AttentionBackendEnum:
    """The member of that name, in a process that may have to register first."""
    if name not in AttentionBackendEnum.__members__:
        register()
    return AttentionBackendEnum[name]


def _member(name: str, path: str) -> AttentionBackendEnum:
    """The member of that name, made where there is none."""
    if name in AttentionBackendEnum.__members__:
        return AttentionBackendEnum[name]
    if hasattr(AttentionBackendEnum, "register"):
        member = AttentionBackendEnum.register(name, path)
    else:
        member = _new_member(name)  # vLLM 0.26 has no function for it
    # A configuration goes to the workers before their plug-ins are loaded.
    member.__reduce_ex__ = partial(_reduce, name)
    return member


def _new_member(name: str) -> AttentionBackendEnum:
    member = object.__new__(AttentionBackendEnum)
    member._name_, member._value_ = name, name
    setattr(AttentionBackendEnum, name, member)
    AttentionBackendEnum._member_map_[name] = member
    AttentionBackendEnum._value2member_map_[name] = member
    AttentionBackendEnum._member_names_.append(name)
    return member


def _reduce(name: str, protocol: int) -> tuple[Any, ...]:
    """How pickle writes a member: by its name."""
    return named, (name,)
