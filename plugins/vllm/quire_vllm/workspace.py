# SPDX-License-Identifier: Apache-2.0
"""Scratch of GPU ops comes from torch's allocator, call by call. Here vLLM's profile run learns how much that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from vllm.config import get_current_vllm_config

from quire_vllm.batch import Batch


@dataclass(frozen=True)
class Limits:
    """Of a step."""

    sequences: int
    keys: int  # of a sequence

    @classmethod
    def of_config(cls) -> Limits:
        """Of the model that is being built."""
        config = get_current_vllm_config()
        keys = 4096 if config.model_config is None else config.model_config.max_model_len
        return cls(config.scheduler_config.max_num_seqs, keys)

    def reserve(self, query: torch.Tensor, page_size: int, ask: Callable[[Batch], int]) -> None:
        """Take as much memory for a moment as the largest step's scratch, whose bytes `ask` gives.

        That is a step of all tokens in one prompt, or of as many sequences as are allowed.
        """
        tokens, device = query.shape[0], query.device
        columns = -(-self.keys // page_size)
        needed = 0
        for sequences in (1, min(self.sequences, tokens)):
            offsets = torch.linspace(0, tokens, sequences + 1, device=device).to(torch.int32)
            lengths = torch.zeros(sequences, dtype=torch.int32, device=device)
            table = torch.zeros(sequences, columns, dtype=torch.int32, device=device)
            most = min(-(-tokens // sequences), self.keys)
            needed = max(needed, ask(Batch(offsets, lengths, table, most, self.keys)))
        torch.empty(needed, dtype=torch.uint8, device=device)
