# SPDX-License-Identifier: Apache-2.0
"""One line of the table: the same work for Quire and for its peers, with what it costs at least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.timing import Bursts, Calls


@dataclass
class Work:
    """A piece of work on several layers of data, ready to run."""

    name: str
    quire: Calls
    kernel: Callable[[], str]  # asked inside the chosen number of threads
    flops: float
    bytes: float  # weights, or K and V, read once
    products: str  # "f32", "bf16", "int8": which product instruction is the ceiling
    peers: dict[str, Calls | Bursts] = field(default_factory=dict)
    # Relative difference of results, ‖quire - peer‖ / ‖peer‖: that it is the same work.
    differences: dict[str, float] = field(default_factory=dict)
    # The same from a reference in float32, for products: Quire's by its name, and the peers'.
    errors: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """How to make a Work; nothing is allocated before."""

    name: str
    make: Callable[[], Work]


_held: dict[object, Any] = {}


def held(make: Callable[..., Any], *arguments: Any) -> Any:
    """What `make` makes of the arguments, kept until something else is asked for: rows of one weight come together."""
    key = (make, *arguments)
    if key not in _held:
        drop_held()
        _held[key] = make(*arguments)
    return _held[key]


def drop_held() -> None:
    _held.clear()


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    ours, theirs = ours.double().flatten(), theirs.double().flatten()
    return float(f"{((ours - theirs).norm() / theirs.norm()).item():.2g}")


# Activations rounded to 8 bits cost 0.01, vLLM's attention over fp8 0.04; sums that saturate, as those of 8-bit products
# do on processors without VNNI, 0.11; another layout of the weight costs all.
SAME_WORK = 0.08


def leave_out_other_work(work: Work) -> Work:
    """Peers whose result is another one are no contenders."""
    for name, apart in list(work.differences.items()):
        if not apart <= SAME_WORK:
            print(f"  left out: {name}: its result is {apart:.2g} of its size away from Quire's")
            del work.peers[name], work.differences[name]
            work.errors.pop(name, None)
    return work


def usable(peers: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """The peers that this machine has; their makers run each once."""
    found: dict[str, Any] = {}
    for name, make in peers.items():
        try:
            found[name] = make()
        except (AttributeError, RuntimeError, NotImplementedError, TypeError) as reason:
            print(f"  left out: {name}: {str(reason).splitlines()[0][:100]}")
    return found


def copies(tensor: torch.Tensor, count: int) -> list[torch.Tensor]:
    return [tensor, *(tensor.clone() for _ in range(count - 1))]


def offsets(lengths: Sequence[int]) -> torch.Tensor:
    """Row offsets [batch + 1] of sequences of these lengths."""
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
