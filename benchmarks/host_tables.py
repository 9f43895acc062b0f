# SPDX-License-Identifier: Apache-2.0
"""Tables of what the host does: records of benchmarks/page_manager.py and benchmarks/threads.py."""

from __future__ import annotations

from typing import Any

from benchmarks.tables import number, table

# Rows of benchmarks/page_manager.cpp at a million pages, and what each does once.
WHAT = {
    "allocate_and_free": "allocate and free a page",
    "look_up": "look up a page of a cached prefix, of one sequence",
    "look_up_in_turns": "the same, of many sequences in turns",
    "create_and_free": "create and free a sequence, for each page of its cached prefix",
    "evict_and_publish": "evict a cached page and publish another",
    "decode_step/1": "decode step of 1 sequence",
    "decode_step/64": "decode step of 64, for each",
    "decode_step/512": "decode step of 512, for each",
}
PARTS = {
    "admit_us_per_page": "admit, µs a page",
    "step_us_per_sequence": "decode step, µs a sequence",
    "free_us_per_request": "free, µs a request",
}


def beside_vllm(record: dict[str, Any]) -> str:
    """Both managers on one trace: hit rates, and the best of the rounds."""
    rows = []
    for row in record["rows"]:
        times = [number(row[part]) for part in PARTS]
        rows.append([row["manager"], f"{100 * row['hit_rate']:.2f} %", *times, number(1e3 * row["seconds"])])
    return table(["manager", "hit rate", *PARTS.values(), "in all, ms"], rows)


def page_manager_table(record: dict[str, Any]) -> str:
    """A record: C++ at a million pages, then Python beside vLLM's manager."""
    text = f"{record['machine']['cpu']}; vllm {record['vllm']}; {record['when'][:10]}, commit {record['commit']}. "
    text += f"The machine's load was {record['load']:.1f}."
    program = record["program"]
    costs = [[what, number(next(iter(program[row].values())))] for row, what in WHAT.items() if row in program]
    return "\n\n".join([text, table(["C++, a million pages", "ns"], costs), beside_vllm(record)])


def _beside_one(row: dict[str, Any] | None) -> str:
    return f"{number(row['us_1']['min'])}: {row['ratio']:.2f} ({row['median_ratio']:.2f})" if row else "–"


def threads_table(record: dict[str, Any]) -> str:
    """For docs/measured/threads.md: one thread's time, and that of two over it, by call and tokens."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for row in record["rows"]:
        found.setdefault(row["call"], {})[row["tokens"]] = row
    heads = ["call", *(f"T = {tokens}" for tokens in record["tokens"])]
    lines = []
    for call, by in found.items():
        lines.append([call, *(_beside_one(by.get(tokens)) for tokens in record["tokens"])])
    busy = 100 * max(row["neighbours"] for row in record["rows"])
    about = f"{record['machine']['cpu']}, {record['when'][:10]}, commit {record['commit']}. "
    about += f"Other processes took up to {busy:.0f} % of the cores."
    return f"{about}\n\n{table(heads, lines)}"
