# SPDX-License-Identifier: Apache-2.0
"""Questions to Quire before a model runs: does a kernel take this, and why not."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import quire
import torch
from vllm.platforms import current_platform

CACHE_DTYPES = {
    "fp8": torch.float8_e4m3fn,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def device() -> torch.device:
    """Where the model runs, or will."""
    if current_platform.is_cuda():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def threads(like: torch.Tensor) -> AbstractContextManager[None]:
    """CPU ops take the threads that vLLM gave to torch; for a GPU there is nothing to say."""
    return quire.using(num_threads=torch.get_num_threads()) if like.device.type == "cpu" else nullcontext()


def reasons(op: str, *args: Any, **kwargs: Any) -> list[str]:
    """Why Quire does not take a call at a speed to serve with; empty if it does.

    The reference, which takes everything and is slow, does not count as a kernel.
    """
    try:
        plan = quire.supports(op, *args, **kwargs)
    except (TypeError, ValueError, NotImplementedError) as error:
        return [f"quire: {error}"]
    if plan and not plan.kernel.startswith("reference"):
        return []
    found = [f"quire: {op}: {refusal.kernel}: {refusal.reason}" for refusal in plan.refusals if _concerns(refusal)]
    nearest = [f"quire: {op}: nearest problem that a kernel takes: {plan.nearest}"] if plan.nearest else []
    return found + nearest or [f"quire: {op}: no kernel"]


def _concerns(refusal: quire.Refusal) -> bool:
    """Whether a refusal says something about the problem, not about the machine."""
    here = "cuda/" if current_platform.is_cuda() else "cpu/"
    return refusal.kernel.startswith(here) and "not compiled" not in refusal.reason


def refuse(found: list[str]) -> None:
    """End vLLM's start with the reasons."""
    if found:
        raise ValueError("; ".join(dict.fromkeys(found)))


def cache_dtype(name: str | None, dtype: torch.dtype) -> torch.dtype:
    """The dtype of cache rows under vLLM's name for it."""
    return CACHE_DTYPES.get(name or "auto", dtype)
