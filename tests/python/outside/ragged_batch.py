# SPDX-License-Identifier: Apache-2.0
"""How the tokens of a few sequences arrive, call by call."""

import torch

from . import seeded

# Each entry is one call: the new tokens of each sequence. A call sees what the earlier ones cached.
SCHEDULES = {
    "cold": [(9, 1, 6)],
    "chunked": [(5, 8, 2), (4, 3, 7), (6, 1, 5)],
    "decode": [(7, 3, 10), (1, 1, 1), (1, 1, 1), (1, 1, 1)],
    "mixed": [(6, 0, 3), (1, 9, 0), (4, 1, 1)],
}


def capacities(schedule) -> list[int]:
    return [sum(counts) for counts in zip(*schedule)]


def by_sequence(module, x: torch.Tensor, counts) -> torch.Tensor:
    """module(x) as transformers runs it, one sequence at a time. torch sums a row of a matrix otherwise than a single
    row, and an error of torch on our side only would be held against quire."""
    return torch.cat([module(part[None])[0] for part in x.split(list(counts))])


class RaggedRun:
    """Hidden states of a whole run, cut into the calls of a schedule."""

    def __init__(self, schedule, hidden: int, seed: int, dtype=torch.float32):
        generator = seeded(seed)
        self.schedule = schedule
        self.states = [torch.randn(n, hidden, generator=generator).to(dtype) for n in capacities(schedule)]

    def calls(self):
        """(lengths before, new counts, per-sequence states of the new tokens) of each call."""
        lengths = [0] * len(self.states)
        for counts in self.schedule:
            parts = [x[n : n + c] for x, n, c in zip(self.states, lengths, counts)]
            yield list(lengths), list(counts), parts
            lengths = [n + c for n, c in zip(lengths, counts)]
