# SPDX-License-Identifier: Apache-2.0
"""The next token from logits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Sampler:
    """Greedy at temperature 0; otherwise the smallest set of tokens of mass `top_p`, drawn from in proportion.

    Every request has its own, with its own random numbers: what it draws does not depend on the batch.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    _rng: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < 100.0:
            raise ValueError(f"sampling: 'temperature' must be from 0 to 100, got {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"sampling: 'top_p' must be above 0, at most 1, got {self.top_p}")
        self._rng = np.random.default_rng(self.seed)

    def __call__(self, logits: np.ndarray) -> int:
        """A token of the float32 logits [vocabulary]; the lowest id among equal ones."""
        best = int(logits.argmax())
        if not np.isfinite(logits[best]):
            raise ValueError(f"sampling: 'logits' must be finite, got {logits[best]} for token {best}")
        if self.temperature == 0.0:
            return best
        weights = np.exp((logits - logits[best]) / self.temperature)  # at most 1
        # Tokens below this together have less than 1 - top_p of the mass: sorting the others is enough.
        floor = (1.0 - self.top_p) / len(weights) * weights.sum(dtype=np.float64)
        tokens = np.flatnonzero(weights >= floor)
        tokens = tokens[np.argsort(-weights[tokens], kind="stable")]
        mass = np.cumsum(weights[tokens], dtype=np.float64)
        kept = 1 + int(np.searchsorted(mass, self.top_p * weights.sum(dtype=np.float64)))
        kept = min(kept, len(tokens))
        return int(tokens[min(kept - 1, np.searchsorted(mass[:kept], self._rng.random() * mass[kept - 1], "right"))])
