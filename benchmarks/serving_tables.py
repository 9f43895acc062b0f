# SPDX-License-Identifier: Apache-2.0
"""Rows of whole models (serving_transformers.py, serving_vllm.py), and their table in docs/integrations.md."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.tables import number, table


@dataclass(frozen=True)
class ServingRow:
    """What is measured, written KIND:SEQUENCESxTOKENS."""

    kind: str
    sequences: int
    tokens: int
    KINDS: ClassVar[tuple[str, ...]] = ("decode", "prefill", "mixed")

    @classmethod
    def parse(cls, text: str) -> ServingRow:
        kind, _, size = text.partition(":")
        sequences, _, tokens = size.partition("x")
        if kind not in cls.KINDS or not (sequences.isdigit() and tokens.isdigit()):
            raise argparse.ArgumentTypeError(f"expected {' or '.join(cls.KINDS)}:SEQUENCESxTOKENS, got {text!r}")
        return cls(kind, int(sequences), int(tokens))

    def __str__(self) -> str:
        return f"{self.kind}:{self.sequences}x{self.tokens}"


def shown(row: dict[str, Any], side: str) -> float:
    """The number that the row's ratio was made of: of the turns the median, or the fastest."""
    values = row["values"][side]
    if row.get("statistic", "median") == "median":
        return statistics.median(values)
    return max(values) if row["unit"] == "tokens/s" else min(values)


def cells(row: dict[str, Any]) -> list[str]:
    measured = ServingRow.parse(row["row"])
    kind = measured.kind
    size_text = f"{measured.sequences} × {'up to ' if kind == 'mixed' else ''}{measured.tokens}"
    dtype = row.get("dtype", "")
    if "threads" in row:
        dtype += f", {row['threads']} thread{'s' if row['threads'] > 1 else ''}"
    times = [number(shown(row, side)) for side in (row["own"], "quire")]
    what = "decode, padded on the left" if kind == "mixed" else kind
    model = row["model"] + (f", {row['layers']} layers" if "vllm" in row and "layers" in row else "")
    return [model, dtype, what, size_text, row["unit"], row["own"], *times, f"{row['time_ratio']:.3f}"]


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
