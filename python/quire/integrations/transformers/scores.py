# SPDX-License-Identifier: Apache-2.0
"""How scores become weights: what transformers passes to an attention function, as Quire's arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, eq=False)
class Scores:
    scale: float | None
    softcap: float
    sinks: torch.Tensor | None  # float32 [heads]

    @classmethod
    def read(cls, scaling: float | None, softcap: float | None, s_aux: torch.Tensor | None) -> Scores:
        sinks = None if s_aux is None else s_aux.detach().reshape(-1).float()
        return cls(None if scaling is None else float(scaling), float(softcap or 0.0), sinks)

    @property
    def arguments(self) -> dict[str, Any]:
        """Of quire.flash_attention."""
        return {"scale": self.scale, "softcap": self.softcap, "sinks": self.sinks}
