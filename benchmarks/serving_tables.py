# SPDX-License-Identifier: Apache-2.0
"""The table of whole models in docs/integrations.md, from the records of serving_transformers.py and serving_vllm.py."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.tables import number, table


def shown(row: dict[str, Any], side: str) -> float:
    """The number that the row's ratio was made of: of the turns the median, or the fastest."""
    values = row["values"][side]
    if row.get("statistic", "median") == "median":
        return statistics.median(values)
    return max(values) if row["unit"] == "tokens/s" else min(values)


def cells(row: dict[str, Any]) -> list[str]:
    kind, _, size = row["row"].partition(":")
    sequences, _, tokens = size.partition("x")
    size_text = f"{sequences} × {'up to ' if kind == 'mixed' else ''}{tokens}"
    dtype = row.get("dtype", "")
    if "threads" in row:
        dtype += f", {row['threads']} thread{'s' if row['threads'] > 1 else ''}"
    times = [number(shown(row, side)) for side in (row["own"], "quire")]
    what = "decode, padded on the left" if kind == "mixed" else kind
    return [row["model"], dtype, what, size_text, row["unit"], row["own"], *times, f"{row['time_ratio']:.3f}"]


def about(rows: Sequence[dict[str, Any]]) -> str:
    """Machine, versions and commits of these rows; each named once."""

    def named(key: str) -> str:
        return ", ".join(dict.fromkeys(str(row[key]) for row in rows))

    engine = "vllm" if "vllm" in rows[0] else "transformers"
    dates = sorted(row["at"][:10] for row in rows)
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    text = f"{named('device')}; {engine} {named(engine)}, torch {named('torch')}; {when}, commit {named('commit')}."
    busy = [row["neighbours"] for row in rows if "neighbours" in row]
    if busy:
        text += f" Other processes took {100 * min(busy):.0f} to {100 * max(busy):.0f} % of the cores meanwhile."
    return text


def serving_table(rows: Sequence[dict[str, Any]]) -> str:
    """A record of benchmarks/serving_*.py."""
    heads = ["model", "dtype", "step", "sequences × tokens", "unit", "without Quire", "its figure", "Quire", "time / without"]
    return f"{about(rows)}\n\n{table(heads, map(cells, rows))}"
