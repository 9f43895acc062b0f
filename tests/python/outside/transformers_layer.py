# SPDX-License-Identifier: Apache-2.0
"""Runs an attention module of transformers sequence by sequence, with its own cache, mask and rope."""

import copy

import torch
from transformers import DynamicCache

from . import seeded

MAX_POSITIONS = 64


def randomize(module: torch.nn.Module, seed: int, gain: float = 1.0) -> torch.nn.Module:
    """Weights that keep activations near one, and norms that are not the identity, so that a forgotten one shows."""
    generator = seeded(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, gain * parameter.shape[-1] ** -0.5, generator=generator)
            else:
                parameter.normal_(0.0, 0.3, generator=generator)
        for child in module.modules():
            if "Norm" in type(child).__name__ and getattr(child, "weight", None) is not None:
                child.weight += 1.0
    return module.eval()


def rope_table(rotary: torch.nn.Module, dtype=torch.float32) -> torch.Tensor:
    """freqs_cis [MAX_POSITIONS, rope_dim]: the cosines and sines of transformers, interleaved."""
    cos, sin = _cos_sin(rotary, torch.arange(MAX_POSITIONS), dtype)
    half = cos.shape[-1] // 2
    return torch.stack((cos[0, :, :half], sin[0, :, :half]), dim=-1).flatten(-2).contiguous()


def _cos_sin(rotary, positions, dtype):
    """Rounded to `dtype` whatever the module computes in, so that every run turns by the same angles."""
    cos, sin = rotary(torch.zeros(1, dtype=torch.float32), positions[None])
    return cos.to(dtype), sin.to(dtype)


class TransformersLayer:
    """One attention module over several sequences, each with a cache of its own."""

    def __init__(self, attention, rotary, num_sequences: int, dtype=torch.float32, rope_dtype=None):
        self.attention = copy.deepcopy(attention).to(dtype)
        self.rotary = rotary
        self.dtype = dtype
        self.rope_dtype = dtype if rope_dtype is None else rope_dtype
        self.caches = [DynamicCache(config=attention.config) for _ in range(num_sequences)]
        self.lengths = [0] * num_sequences
        self.window = None

    def positions(self, sequence: int, count: int) -> torch.Tensor:
        return torch.arange(count) + self.lengths[sequence]

    def cos_sin(self, positions: torch.Tensor):
        cos, sin = _cos_sin(self.rotary, positions, self.rope_dtype)
        return cos.to(self.dtype), sin.to(self.dtype)

    @torch.no_grad()
    def run(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Outputs of the new tokens of all sequences, [tokens, hidden]."""
        return torch.cat([self._run_one(s, x) for s, x in enumerate(parts)])

    def _run_one(self, sequence: int, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 0:
            return x.to(self.dtype)
        positions = self.positions(sequence, x.shape[0])
        out, _ = self.attention(
            hidden_states=x[None].to(self.dtype),
            position_embeddings=self.cos_sin(positions),
            attention_mask=self._mask(positions),
            past_key_values=self.caches[sequence],
            position_ids=positions[None],
        )
        self.lengths[sequence] += x.shape[0]
        return out[0]

    def _mask(self, positions: torch.Tensor) -> torch.Tensor:
        keys = torch.arange(int(positions[-1]) + 1)
        visible = keys <= positions[:, None]
        if self.window is not None:
            visible &= positions[:, None] - keys < self.window
        return visible[None, None]
