# SPDX-License-Identifier: Apache-2.0
"""The way from a public function to the extension module: it runs the op, or only plans it for `supports`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from quire import _quire
from quire._tensor import Array, current_stream


@dataclass(frozen=True)
class _Options:
    num_threads: int = 0
    kernel: str = ""
    stream: int | None = None


_options: ContextVar[_Options] = ContextVar("quire_options", default=_Options())
_plans: ContextVar[list[_quire.Plan] | None] = ContextVar("quire_plans", default=None)


@contextmanager
def using(
    *, num_threads: int | None = None, kernel: str | None = None, stream: int | None = None
) -> Iterator[None]:
    """Choose how the ops inside the block run. Their results do not depend on it.

    Parameters
    ----------
    num_threads : int, optional
        Threads of CPU ops; 0 means all cores.
    kernel : str, optional
        Take only kernels whose name starts with this, such as "reference" or "cpu/avx2".
    stream : int, optional
        The `cudaStream_t` of GPU ops; by default the current stream of the caller's framework.

    Examples
    --------
    >>> with quire.using(kernel="reference", num_threads=1):
    ...     keys = quire.row_offsets(np.array([0, 3], np.uint32), np.array([5], np.uint32))
    >>> keys.tolist()
    [0, 8]
    """
    given = {"num_threads": num_threads, "kernel": kernel, "stream": stream}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    token = _options.set(replace(_options.get(), **changes))
    try:
        yield
    finally:
        _options.reset(token)


@contextmanager
def planning() -> Iterator[list[_quire.Plan]]:
    """Inside the block ops are validated and planned, and not run; the plans are collected."""
    plans: list[_quire.Plan] = []
    token = _plans.set(plans)
    try:
        yield plans
    finally:
        _plans.reset(token)


def context(like: Array) -> _quire.Context:
    """The options in force, for a call whose first tensor is `like`."""
    options = _options.get()
    stream = current_stream(like) if options.stream is None else options.stream
    return _quire.Context(options.num_threads, options.kernel, stream)


def run(op: str, like: Array, **arguments: Any) -> None:
    """Run (or, inside `planning`, plan) the op of that name."""
    plans = _plans.get()
    if plans is None:
        getattr(_quire, op)(context(like), **arguments)
    else:
        plans.append(getattr(_quire, "plan_" + op)(context(like), **arguments))
