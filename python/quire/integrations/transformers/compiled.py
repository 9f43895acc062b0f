# SPDX-License-Identifier: Apache-2.0
"""Under torch.compile: what stays outside of the graphs that it makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

_TAKES_REASON = "reason" in inspect.signature(torch.compiler.disable).parameters  # from torch 2.7 on


def outside_of_graphs(reason: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compiled code calls the function as it is; with fullgraph=True, which allows no calls, it is refused so."""
    return torch.compiler.disable(reason=f"quire: {reason}") if _TAKES_REASON else torch.compiler.disable()
