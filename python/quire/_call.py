# SPDX-License-Identifier: Apache-2.0
"""The way from a public function to the extension module: it runs the op, or only plans it for `supports`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NoReturn

from quire import _quire
from quire._tensor import Array, current_stream, device_of, empty, is_dense, is_on_gpu, is_writable, span


@dataclass(frozen=True)
class _Options:
    num_threads: int = 0
    kernel: str = ""
    stream: int | None = None
    workspace: Array | None = None
    overlaps_previous: bool = False
    # By stream, of calls without a workspace: the same few come again and again.
    contexts: dict[int, _quire.Context] = field(default_factory=dict, compare=False, repr=False)

    def context(self, stream: int, workspace: tuple[int, int] = (0, 0)) -> _quire.Context:
        return _quire.Context(self.num_threads, self.kernel, stream, *workspace, self.overlaps_previous)

    def remembered_context(self, stream: int) -> _quire.Context:
        found = self.contexts.get(stream)
        if found is None:
            found = self.context(stream)
            if len(self.contexts) < 64:
                self.contexts[stream] = found
        return found


_options: ContextVar[_Options] = ContextVar("quire_options", default=_Options())
_plans: ContextVar[list[_quire.Plan] | None] = ContextVar("quire_plans", default=None)


@contextmanager
def using(
    *,
    num_threads: int | None = None,
    kernel: str | None = None,
    stream: int | None = None,
    workspace: Array | None = None,
    overlaps_previous: bool | None = None,
) -> Iterator[None]:
    """Choose how the ops inside the block run. Only roundings of results may depend on it (`kernel`).

    Parameters
    ----------
    num_threads : int, optional
        Threads of CPU ops, at most 1024; 0 means all cores that the process may use (`info()["cores"]`).
    kernel : str, optional
        Take only kernels whose name starts with this, such as "reference" or "cpu/avx2".
    stream : int, optional
        The `cudaStream_t` of GPU ops; by default the current stream of the caller's framework.
    workspace : dense array, optional
        Writable scratch of at least the `workspace_bytes` that `supports` reports, on the device of the op's tensors and aligned
        to 256 bytes, as allocators give it. Two streams need one each. By default
        CPU ops keep their own, and GPU ops take some from the caller's framework for the call. A CUDA graph that
        is to be replayed later needs one that stays.
    overlaps_previous : bool, optional
        GPU ops may start while the stream's last kernel still runs (programmatic dependent launch). Until that one has
        ended they read nothing but weights; True is the promise that these were complete before that kernel began.

    Examples
    --------
    >>> with quire.using(kernel="reference", num_threads=1):
    ...     keys = quire.row_offsets(np.array([0, 3], np.uint32), np.array([5], np.uint32))
    >>> keys.tolist()
    [0, 8]
    """
    if workspace is not None and not is_dense(workspace):
        refuse_value("using", "workspace", "a dense numpy, torch or CuPy array", type(workspace).__name__)
    if workspace is not None and not is_writable(workspace):
        refuse_value("using", "workspace", "writable", "a read-only array")
    given = {
        "num_threads": num_threads,
        "kernel": kernel,
        "stream": stream,
        "workspace": workspace,
        "overlaps_previous": overlaps_previous,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    _quire.Context(**{name: value for name, value in changes.items() if name != "workspace"})  # raises here, not in ops
    token = _options.set(replace(_options.get(), contexts={}, **changes))
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


@contextmanager
def running() -> Iterator[None]:
    """Inside the block ops run, also within `planning`: for what an op makes before its own arguments are whole."""
    token = _plans.set(None)
    try:
        yield
    finally:
        _plans.reset(token)


def refuse_value(op: str, argument: str, expected: str, actual: str) -> NoReturn:
    """Raise what the ops raise for a wrong shape, range or content: a ValueError with its four attributes."""
    _quire.refuse(False, op, argument, expected, actual)


def refuse_type(op: str, argument: str, expected: str, actual: str) -> NoReturn:
    """Raise what the ops raise for a wrong type, dtype or device: a TypeError with its four attributes."""
    _quire.refuse(True, op, argument, expected, actual)


def flag(op: str, argument: str, value: bool) -> bool:
    """A True or False that Python itself acts on."""
    if not isinstance(value, bool):
        refuse_type(op, argument, "True or False", type(value).__name__)
    return value


def whole_number(op: str, argument: str, value: int, lowest: int) -> int:
    """A size that Python itself computes with, up to 2^31 - 1."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        refuse_type(op, argument, "a whole number", type(value).__name__)
    if not lowest <= value < 2**31:
        shown = str(value) if abs(value) < 2**63 else "a very large int"
        refuse_value(op, argument, f"from {lowest} to {2**31 - 1}", shown)
    return int(value)


def _workspace_for(like: Array, workspace: Array) -> tuple[int, int]:
    """Address and bytes of a given workspace. Kernels write there without looking at what it is."""
    if device_of(workspace) != device_of(like):
        refuse_type("using", "workspace", f"on {device_of(like)} like the tensors", f"on {device_of(workspace)}")
    return span(workspace)


def context(like: Array, workspace: Array | None = None) -> _quire.Context:
    """The options in force, for a call whose first tensor is `like`."""
    options = _options.get()
    stream = current_stream(like) if options.stream is None else options.stream
    scratch = options.workspace if workspace is None else workspace
    if scratch is None:
        return options.remembered_context(stream)
    return options.context(stream, _workspace_for(like, scratch))


def _scratch(op: str, like: Array, arguments: dict[str, Any]) -> Array | None:
    """What a GPU op needs beyond its arguments, from the framework's allocator, which orders it by stream."""
    if _options.get().workspace is not None or not is_on_gpu(like):
        return None
    needed = getattr(_quire, "plan_" + op)(context(like), **arguments).workspace_bytes
    return empty(like, (needed,), "u8") if needed > 0 else None


def run(op: str, like: Array, **arguments: Any) -> None:
    """Run (or, inside `planning`, plan) the op of that name."""
    plans = _plans.get()
    if plans is None:
        workspace = _scratch(op, like, arguments)
        getattr(_quire, op)(context(like, workspace), **arguments)
    else:
        plans.append(getattr(_quire, "plan_" + op)(context(like), **arguments))
