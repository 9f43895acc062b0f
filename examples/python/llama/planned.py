# SPDX-License-Identifier: Apache-2.0
"""Calls that a layer is made of, planned once: what `quire.plan` gives for its ops, and the same form for what numpy does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import quire

Call = Callable[[], object]
# Formats whose products may be of 8-bit integers: GGUF's blocks of 32 columns.
INT8_FORMATS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4")


def rounding(weight: quire.PackedWeight, activations: str) -> str:
    """Exact where the weight's format has nothing else."""
    return activations if weight.format in INT8_FORMATS else "exact"


def plan_linear(x: np.ndarray, weight: quire.PackedWeight, activations: str, *, out: np.ndarray) -> Call:
    """out = x · weightᵀ."""
    return quire.plan("linear", x, weight, activations=rounding(weight, activations), out=out)


def plan_rms_norm(x: np.ndarray, gamma: np.ndarray, epsilon: float, *, out: np.ndarray) -> Call:
    """out = x * rsqrt(mean(x²) + epsilon) * gamma, by rows.

    Quire normalises rows of a cache, in place: `out` is given to it as a page of one head and as many tokens.
    """
    tokens, columns = x.shape
    page = quire.PagedKVCache(
        out.reshape(1, 1, 1, tokens, 1, columns), np.zeros(1, np.uint32), np.zeros((1, 1), np.uint32)
    )
    norm = quire.plan("rms_norm_key", np.array([0, tokens], np.uint32), page, 0, gamma=gamma, epsilon=epsilon)

    def call() -> None:
        np.copyto(out, x)
        norm()

    return call


def plan_swiglu(gate: np.ndarray, up: np.ndarray, *, out: np.ndarray) -> Call:
    """out = gate / (1 + exp(-gate)) * up."""
    one = np.float32(1)

    def call() -> None:
        np.negative(gate, out=out)
        np.exp(out, out=out)  # infinite for gate < -88, and gate / inf is the 0 that it should be
        np.add(out, one, out=out)
        np.divide(gate, out, out=out)
        np.multiply(out, up, out=out)

    return call


def plan_add(x: np.ndarray, delta: np.ndarray) -> Call:
    """x += delta."""

    def call() -> None:
        np.add(x, delta, out=x)

    return call
