# SPDX-License-Identifier: Apache-2.0
"""Calls that a layer is made of, planned once: Quire's by `quire.plan`, and numpy's in the same form."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import numpy as np
import quire

Call = Callable[[], object]
MIN_PART = 1 << 14  # numbers that are worth a thread of their own
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


@cache
def _workers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="swiglu")


def plan_swiglu(gate: np.ndarray, up: np.ndarray, *, out: np.ndarray, threads: int) -> Call:
    """out = gate / (1 + exp(-gate)) * up, in numpy; many rows by several threads."""
    parts = max(1, min(threads, len(out), out.size // MIN_PART))
    cuts = [slice(i * len(out) // parts, (i + 1) * len(out) // parts) for i in range(parts)]
    first, *others = [partial(_swiglu, gate[cut], up[cut], out[cut]) for cut in cuts]

    def call() -> None:
        running = [_workers(threads).submit(other) for other in others]
        first()
        for part in running:
            part.result()

    return call if others else first


def _swiglu(gate: np.ndarray, up: np.ndarray, out: np.ndarray) -> None:
    np.negative(gate, out=out)
    with np.errstate(over="ignore"):  # exp is infinite for gate < -88, and gate / inf is the 0 that it should be
        np.exp(out, out=out)
    np.add(out, np.float32(1), out=out)
    np.divide(gate, out, out=out)
    np.multiply(out, up, out=out)


def plan_add(x: np.ndarray, delta: np.ndarray) -> Call:
    """x += delta."""

    def call() -> None:
        np.add(x, delta, out=x)

    return call
