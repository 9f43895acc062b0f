# SPDX-License-Identifier: Apache-2.0
"""The way from a public function to the extension module: it runs the op, or only plans it for `supports`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NoReturn

from quire import _quire
from quire._tensor import (
    Array,
    current_stream,
    device_of,
    empty,
    gpu_index,
    is_dense,
    is_on_gpu,
    is_writable,
    scratch,
    span,
)


@dataclass(frozen=True)
class _Options:
    num_threads: int = 0
    kernel: str = ""
    stream: int | None = None
    workspace: Array | None = None
    overlaps_previous: bool = False
    # By stream and, with a workspace, the device of the tensors: the same few come again and again.
    contexts: dict[tuple[int, int], _quire.Context] = field(default_factory=dict, compare=False, repr=False)

    def context(self, stream: int, workspace: tuple[int, int] = (0, 0)) -> _quire.Context:
        return _quire.Context(self.num_threads, self.kernel, stream, *workspace, self.overlaps_previous)

    def context_for(self, like: Array) -> _quire.Context:
        """For a call whose first tensor is `like`."""
        stream = current_stream(like) if self.stream is None else self.stream
        key = (stream, -1 if self.workspace is None else gpu_index(like))
        found = self.contexts.get(key)
        if found is None:
            span = (0, 0) if self.workspace is None else _workspace_for(like, self.workspace)
            found = self.context(stream, span)
            if len(self.contexts) < 64:
                self.contexts[key] = found
        return found


_options: ContextVar[_Options] = ContextVar("quire_options", default=_Options())
# What takes the calls of ops in place of running them: supports() and plan().
_Collect = Callable[[str, Array, dict[str, Any]], None]
_collect: ContextVar[_Collect | None] = ContextVar("quire_collect", default=None)


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
def collecting(collect: _Collect) -> Iterator[None]:
    """Inside the block ops are not run: `collect` is called with the op's name, its first tensor and its arguments."""
    token = _collect.set(collect)
    try:
        yield
    finally:
        _collect.reset(token)


@contextmanager
def running() -> Iterator[None]:
    """Inside the block ops run, also within `collecting`: for what an op makes before its own arguments are whole."""
    token = _collect.set(None)
    try:
        yield
    finally:
        _collect.reset(token)


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


def context(like: Array) -> _quire.Context:
    """The options in force, for a call whose first tensor is `like`."""
    return _options.get().context_for(like)


_quire.set_scratch(scratch)


def run(op: str, like: Array, **arguments: Any) -> None:
    """Run the op of that name; inside `collecting`, hand it over instead."""
    collect = _collect.get()
    if collect is None:
        options = _options.get()
        allocates = options.workspace is None and is_on_gpu(like)
        getattr(_quire, op)(options.context_for(like), like if allocates else None, arguments)
    else:
        collect(op, like, arguments)


class PreparedCall:
    """A call of an op whose kernel was chosen ahead; `quire.plan` makes it."""

    def __init__(self, op: str, like: Array, arguments: dict[str, Any]) -> None:
        self._like = like
        self._arguments = arguments
        self._call = getattr(_quire, "prepare_" + op)(context(like), arguments)
        plan = self._call.plan
        if not plan:
            # The op itself says why not.
            getattr(_quire, op)(context(like), None, arguments)
        options = _options.get()
        workspace = options.workspace
        if workspace is None and plan.workspace_bytes > 0 and is_on_gpu(like):
            workspace = empty(like, (plan.workspace_bytes,), "u8")
        self._options = replace(options, workspace=workspace, contexts={})
        self._result: Any = None
        self._returned: list[str | None] = []

    @property
    def plan(self) -> _quire.Plan:
        """Which kernel runs, its choices, and the better ones that refused."""
        return self._call.plan

    def returns(self, result: Any) -> None:
        """Remember what the op returned, and which of its arguments that is."""
        self._result = result
        parts = result if isinstance(result, tuple) else (result,)
        names = {id(value): name for name, value in self._arguments.items() if value is not None}
        self._returned = [names.get(id(part)) for part in parts]

    def __call__(self, **changed: Any) -> Any:
        """Run the op, with these arguments in place of those that were planned; returns what the op returns."""
        context = self._options.context_for(self._like)
        if not changed:
            self._call.run(context, None)
            return self._result
        self._call.run(context, changed)
        if not isinstance(self._result, tuple):
            return self._part(self._result, self._returned[0], changed)
        parts = zip(self._result, self._returned, strict=True)
        return type(self._result)(self._part(part, name, changed) for part, name in parts)

    @staticmethod
    def _part(part: Any, name: str | None, changed: dict[str, Any]) -> Any:
        return part if name is None else changed.get(name, part)
