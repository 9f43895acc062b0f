# SPDX-License-Identifier: Apache-2.0
"""Whether time grows as the work does. A point has n, work (in any unit) and us_min."""

from __future__ import annotations

from collections.abc import Sequence

# From one point to the next, time may grow by this much more than work does: noise, and caches that overflow.
TOLERANCE = 1.25


def growth(points: Sequence[dict[str, float]]) -> list[float]:
    """Of each step: how many times more time grew than work did."""
    steps = zip(points, points[1:], strict=False)
    return [(b["us_min"] / a["us_min"]) / (b["work"] / a["work"]) for a, b in steps]


def superlinear(points: Sequence[dict[str, float]]) -> list[float]:
    """The n at which time grew faster than work."""
    pairs = zip(points[1:], growth(points), strict=True)
    return [point["n"] for point, factor in pairs if factor > TOLERANCE]
