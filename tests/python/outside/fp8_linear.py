# SPDX-License-Identifier: Apache-2.0
"""A projection with fp8 weights in 128×128 blocks, as torch casts and multiplies it."""

import torch
from torch.nn.functional import linear, pad

BLOCK = 128
LARGEST = 448.0
MAX_AMAX = 1200.0  # the bound that DeepSeek-style kernels put on an activation's amax


class Fp8Linear(torch.nn.Module):
    """Stands for an nn.Linear: weights quantized per block, activations per 128 columns, then a plain product."""

    def __init__(self, weight: torch.Tensor):
        super().__init__()
        rows, columns = weight.shape
        padded = pad(weight, (0, -columns % BLOCK, 0, -rows % BLOCK))
        blocks = padded.unflatten(1, (-1, BLOCK)).unflatten(0, (-1, BLOCK))
        self.scale = blocks.abs().amax(dim=(1, 3)) / LARGEST  # [row blocks, column blocks]
        expanded = self.scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:rows, :columns]
        self.bytes = (weight / expanded).to(torch.float8_e4m3fn)
        self.values = self.bytes.double() * expanded.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        groups = x.float().unflatten(-1, (-1, BLOCK))
        scale = groups.abs().amax(-1, keepdim=True).clamp(max=MAX_AMAX) / LARGEST
        rounded = (groups / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
        values = (rounded.double() * scale.double()).flatten(-2)
        return linear(values.to(x.dtype), self.values.to(x.dtype))
