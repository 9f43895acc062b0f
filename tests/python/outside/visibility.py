# SPDX-License-Identifier: Apache-2.0
"""Which keys a query sees, said once more in torch: the other side of quire's masks."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

import quire

# (positions of the queries [q, 1], positions of the keys [1, k]) → bool [q, k]
Rule = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class Visibility:
    rule: Rule
    mask: object  # the same as a quire mask


def causal() -> Visibility:
    return Visibility(lambda q, k: k <= q, quire.causal())


def full() -> Visibility:
    return Visibility(lambda q, k: (k <= q) | (k > q), quire.full())


def window(size: int) -> Visibility:
    return Visibility(lambda q, k: (q - k).abs() < size, quire.sliding_window(size))


def chunked(size: int) -> Visibility:
    return Visibility(
        lambda q, k: torch.div(q, size, rounding_mode="floor") == torch.div(k, size, rounding_mode="floor"),
        quire.chunked(size),
    )


def both(left: Visibility, right: Visibility) -> Visibility:
    return Visibility(lambda q, k: left.rule(q, k) & right.rule(q, k), left.mask & right.mask)


def either(left: Visibility, right: Visibility) -> Visibility:
    return Visibility(lambda q, k: left.rule(q, k) | right.rule(q, k), left.mask | right.mask)


VISIBILITIES = {
    "causal": causal,
    "full": full,
    "window_both_sides": lambda: window(4),
    "window_causal": lambda: both(causal(), window(5)),
    "window_of_one": lambda: both(causal(), window(1)),
    "chunked": lambda: chunked(6),
    "chunked_causal": lambda: both(causal(), chunked(4)),
    "causal_or_chunked": lambda: either(causal(), chunked(8)),
    "causal_window_or_chunk": lambda: both(causal(), either(window(3), chunked(5))),
}
