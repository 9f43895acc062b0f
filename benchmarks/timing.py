# SPDX-License-Identifier: Apache-2.0
"""Times of several contenders in one process: bursts in turn, every call on data that no cache holds."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Protocol

# A contender is the same work on the data of one layer after another, as a model does it.
Calls = Sequence[Callable[[], object]]


class Bursts(Protocol):
    """A contender in another process, which times its own calls."""

    def burst(self, seconds: float) -> list[float]: ...


# The threads of an OpenMP library spin for some milliseconds after their last loop; a contender must not meet them.
PAUSE_SECONDS = 0.02
BURST_SECONDS = 0.03
MIN_BURSTS = 5


@dataclass(frozen=True)
class Times:
    """Microseconds of one contender's calls."""

    us_min: float
    us_median: float
    runs: int

    @staticmethod
    def of(samples: Sequence[float]) -> Times:
        return Times(round(min(samples), 2), round(statistics.median(samples), 2), len(samples))


def cache_bytes() -> int:
    """The largest cache of this machine, or 32 MiB: some systems do not name one that they have."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    units = {"K": 1 << 10, "M": 1 << 20}
    texts = [file.read_text().strip() for file in sizes]
    return max([int(text[:-1]) * units[text[-1]] for text in texts] + [32 << 20])


def layers_beyond_cache(bytes_per_layer: float) -> int:
    """How many layers it takes until hardly anything of the first is left in the caches, whatever they evict.

    One that is four caches large itself is read in the same order again, and pushes out its own beginning.
    """
    others = 4 * cache_bytes() / max(bytes_per_layer, 1.0)
    return 1 if others <= 1 else 1 + max(1, round(others))


def _call_seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def burst(calls: Iterator[Callable[[], object]], seconds: float) -> list[float]:
    """Microseconds of each call for `seconds`; the first call wakes the threads and does not count."""
    first = _call_seconds(next(calls))
    if first > 10 * seconds:  # a second one would take too long, and waking is no part of this one
        return [first * 1e6]
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while not samples or time.perf_counter() < end:
        samples.append(_call_seconds(next(calls)) * 1e6)
    return samples


class _OwnCalls:
    """A contender in this process."""

    def __init__(self, calls: Calls) -> None:
        self._calls = cycle(calls)

    def burst(self, seconds: float) -> list[float]:
        return burst(self._calls, seconds)


def time_in_turns(contenders: dict[str, Calls | Bursts], seconds: float) -> dict[str, Times]:
    """Bursts of A, B, A, B, … until each has had about `seconds`."""
    rounds = max(MIN_BURSTS, round(seconds / BURST_SECONDS))
    runners = {name: calls if hasattr(calls, "burst") else _OwnCalls(calls) for name, calls in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    spent = dict.fromkeys(contenders, 0.0)
    with _no_garbage_collection():
        for _ in range(rounds):
            for name, runner in runners.items():
                if samples[name] and spent[name] > 2 * seconds:
                    continue
                time.sleep(PAUSE_SECONDS)
                start = time.perf_counter()
                samples[name] += runner.burst(BURST_SECONDS)
                spent[name] += time.perf_counter() - start
    return {name: Times.of(values) for name, values in samples.items()}


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class NeighbourWatch:
    """The share of all cores' time that other processes took while the block ran."""

    share = 0.0

    def __init__(self, pids: Collection[int] = ()) -> None:
        """Besides this process, these are no neighbours either."""
        self._pids = pids

    def __enter__(self) -> NeighbourWatch:
        self._start = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        busy, total, own = (now - then for now, then in zip(self._read(), self._start, strict=True))
        self.share = round(max(0.0, busy - own) / total, 3) if total > 0 else 0.0

    def _read(self) -> tuple[float, float, float]:
        """Seconds: busy and all of the machine, and of this process and the others named."""
        with open("/proc/stat") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        tick = os.sysconf("SC_CLK_TCK")
        idle = ticks[3] + ticks[4]
        times = os.times()
        own = times.user + times.system
        for pid in self._pids:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            own += (int(fields[11]) + int(fields[12])) / tick
        return (sum(ticks) - idle) / tick, sum(ticks) / tick, own
