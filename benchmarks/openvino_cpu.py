# SPDX-License-Identifier: Apache-2.0
"""OpenVINO's products with compressed weights as a peer of benchmarks/cpu.py, in a process and an environment of its own.

    python -m benchmarks.cpu --openvino build/model_peers/venv/bin/python

benchmarks/model_peers.sh makes that environment. A layer is a model of one product, compiled beforehand: its weight is
compressed and in the order that OpenVINO likes, on memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks import forced_target
from benchmarks.peer_process import Makers, PeerProcess, serve


def start(python: str) -> PeerProcess:
    return PeerProcess("openvino", python, "benchmarks.openvino_cpu")


# The other side from here on.


def product(tokens: int, weight: Any, scale: np.ndarray) -> Any:
    """x [tokens, K] times a constant [N, groups, group] of integers and its scale [N, groups], as a model of OpenVINO."""
    import openvino
    from openvino import opset13 as ops

    rows, groups, group = weight.shape
    x = ops.parameter([tokens, groups * group], openvino.Type.f32)
    scaled = ops.multiply(ops.convert(ops.constant(weight), "f16"), ops.constant(scale.astype(np.float16)[..., None]))
    dense = ops.convert(ops.reshape(scaled, [rows, groups * group], special_zero=False), "f32")
    return openvino.Model([ops.matmul(x, dense, False, True)], [x])


class Products:
    """A compiled model for each layer. `rounded`: OpenVINO may round x to 8 bits, in groups as large as the weight's."""

    def __init__(self, x: np.ndarray, weight: Callable[[], Any], scale: np.ndarray, layers: int, rounded: bool) -> None:
        self.x, self.weight, self.scale = np.ascontiguousarray(x, np.float32), weight, scale
        self.layers, self.rounded = layers, rounded
        self.threads = 0

    def use_threads(self, threads: int) -> Sequence[Callable[[], Any]]:
        import openvino

        if threads != self.threads:
            group = self.x.shape[1] // self.scale.shape[1]
            settings = {
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": 1,
                "PERFORMANCE_HINT": "LATENCY",
                "DYNAMIC_QUANTIZATION_GROUP_SIZE": group if self.rounded else 0,
            }
            # In bf16, its own choice where there is AMX, it rounds nothing; oneDNN has no bf16 for avx2.
            if self.rounded or forced_target.target() == "avx2":
                settings["INFERENCE_PRECISION_HINT"] = "f32"
            core = openvino.Core()
            self.requests = [self._request(core, settings) for _ in range(self.layers)]
            self.threads = threads
        return [request.infer for request in self.requests]

    def _request(self, core: Any, settings: dict[str, Any]) -> Any:
        import openvino

        model = product(len(self.x), self.weight(), self.scale)
        request = core.compile_model(model, "CPU", settings).create_infer_request()
        request.set_input_tensor(openvino.Tensor(self.x, shared_memory=True))
        request.infer()
        return request

    def result(self) -> np.ndarray:
        self.requests[0].infer()
        return np.array(self.requests[0].get_output_tensor().data)


def int4(arrays: dict[str, np.ndarray], *, layers: int) -> Makers:
    """x [tokens, K]; codes 0..15 [N, K] with a zero point of 8; scale [N, K / group]."""
    import openvino

    x, codes, scale = arrays["x"], arrays["codes"], arrays["scale"]
    signed = (codes ^ 8).reshape(-1, 2)  # nibbles of two's complement, the even column in the low one
    packed = np.ascontiguousarray(signed[:, 0] | signed[:, 1] << 4)
    shape = [len(codes), scale.shape[1], codes.shape[1] // scale.shape[1]]

    def weight() -> Any:
        made = openvino.Tensor(openvino.Type.i4, shape)  # has memory of its own, unlike one made from an array
        made.data.reshape(-1)[:] = packed
        return made

    return {
        "w4a16": lambda: Products(x, weight, scale, layers, rounded=False),
        "w4a8": lambda: Products(x, weight, scale, layers, rounded=True),
    }


def int8(arrays: dict[str, np.ndarray], *, layers: int) -> Makers:
    """x [tokens, K]; codes int8 [N, K]; scale [N]."""
    x, codes, scale = arrays["x"], arrays["codes"], arrays["scale"][:, None]

    def weight() -> Any:
        return codes[:, None].copy()

    return {
        "w8a16": lambda: Products(x, weight, scale, layers, rounded=False),
        "w8a8": lambda: Products(x, weight, scale, layers, rounded=True),
    }


def load() -> tuple[str, dict[str, Callable[..., Makers]]]:
    import openvino  # noqa: F401  # an environment without it says so at once

    return version("openvino"), {"int4": int4, "int8": int8}


if __name__ == "__main__":
    serve(load)
