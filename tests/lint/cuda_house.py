# SPDX-License-Identifier: Apache-2.0
"""The house rules of src/cuda: an op includes its own folder and common/, a type name means one thing, a namespace is a
folder, and any/ has no instruction that only sm_90 has."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from source_tree import list_cpp_files, run_check

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)

# An op that runs another op: only that one's launch.h. (who, whom)
COMPOSED = {
    ("sm90/flash_attention", "any/merge_states"),  # cascade: two attentions, merged
    ("any/mla_prefill", "any/mla_decode"),  # sequences of a mixed batch that are decoded
    ("any/mla_prefill", "sm90/mla_decode"),
    ("sm90/mla_prefill", "any/rope"),
    ("common/matmul", "any/store"),  # K and V rows that wait for their encoding
    ("common/mla", "any/store"),  # finished latent rows
}
# Instructions that a GPU before sm_90 does not have.
SM90_ONLY = re.compile(
    r"cp\.async\.bulk|mbarrier|wgmma|setmaxnreg|griddepcontrol|cudaGridDependencySynchronize"
    r"|cudaTriggerProgrammaticLaunchCompletion|fence_view_async|cluster_|stmatrix|SM90_|bulk_copy\.cuh|bulk_store\.cuh"
    r"|pipeline/ring\.cuh|pipeline/tma\.cuh|mma/wgmma"
)
# Files of any/ that have some nevertheless and must be changed before they compile for sm_80.
NEEDS_SM90 = {
    "any/quantize_fp8/general.cu",
    "any/quantize_fp8/groups.cu",
    "any/store/code_rows.cu",
    "any/index_rows/key_stages.cuh",
    "common/mla/finish_plain.cu",
}
TYPE = re.compile(
    r"^(?:template\s*<[^\n]*>\s*)?(?:struct|class|enum class|enum|union)\s+(?:alignas\([^)]*\)\s*|__align__\([^)]*\)\s*)?"
    r"(\w+)\s*(?:final\s*)?(?::[^:;\n][^\n]*)?\{", re.M)
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.M)


def files_of(root: Path) -> list[Path]:
    """Relative to src/cuda."""
    paths = list_cpp_files(root, "src")
    return [path.relative_to("src/cuda") for path in paths if path.parts[:2] == ("src", "cuda")]


def owner(path: str) -> str:
    return "/".join(path.split("/")[:2])


def strip_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def judge_include(path: str, target: str) -> str | None:
    mine, other = owner(path), owner(target)
    if mine == other or "/" not in path or path.startswith("absent/") or target.startswith("common/") or target == "kernels.h":
        return None  # kernels.cpp and absent/ list the kernels of all ops
    is_launch = target.endswith("/launch.h")
    if (mine, other) in COMPOSED:
        return None if is_launch else f"{mine} may include only launch.h of {other}, not {target}"
    if mine.startswith("sm90/") and other == "any/" + mine.split("/")[1]:
        return None
    return f"{mine} must not include {target}"


def check_includes(root: Path) -> Iterator[str]:
    for path in files_of(root):
        for target in INCLUDE.findall((root / "src/cuda" / path).read_text()):
            problem = judge_include(path.as_posix(), target[len("cuda/") :]) if target.startswith("cuda/") else None
            if problem:
                yield f"src/cuda/{path}: {problem}"


def check_cycles(root: Path) -> Iterator[str]:
    """Folders of common/ below each other include in one direction."""
    edges: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files_of(root):
        if path.parts[0] != "common":
            continue
        for target in INCLUDE.findall((root / "src/cuda" / path).read_text()):
            if target.startswith("cuda/common/"):
                other = target.split("/")[2]
                if other != path.parts[1]:
                    edges[path.parts[1]].setdefault(other, f"{path} -> {target}")
    state: dict[str, int] = {}

    def walk(node: str, trail: list[str]) -> Iterator[str]:
        state[node] = 1
        for other in sorted(edges[node]):
            if state.get(other) == 1:
                ring = [*trail[trail.index(other):], node, other] if other in trail else [node, other]
                yield "common/ has a ring: " + " -> ".join(ring) + f" ({edges[node][other]})"
            elif other not in state:
                yield from walk(other, [*trail, node])
        state[node] = 2

    for node in sorted(list(edges)):
        if node not in state:
            yield from walk(node, [])


def types_of(root: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in files_of(root):
        text = strip_comments((root / "src/cuda" / path).read_text())
        for name in dict.fromkeys(TYPE.findall(text)):
            found[name].append(path.as_posix())
    return found


def check_types(root: Path) -> Iterator[str]:
    for name, places in sorted(types_of(root).items()):
        if len(places) > 1:
            yield f"type {name} is defined in {', '.join(places)}"


def expected_namespace(path: Path) -> str:
    if path.parts[0] in ("any", "sm90"):
        return f"quire::cuda::{path.parts[0]}::{path.parts[1]}"
    return "quire::cuda"


def check_namespaces(root: Path) -> Iterator[str]:
    for path in files_of(root):
        if path.parts[0] == "absent" or len(path.parts) == 1:
            continue
        text = (root / "src/cuda" / path).read_text()
        for space in NAMESPACE.findall(text):
            if space in ("quire", "detail") or "::" not in space:
                continue
            expected = expected_namespace(path)
            if space != expected and not space.startswith(expected + "::"):
                yield f"src/cuda/{path}: namespace {space}, not {expected}"


def check_any(root: Path) -> Iterator[str]:
    found = set()
    for path in files_of(root):
        if path.parts[0] == "any" or path.parts[:2] in (("common", "mla"), ("common", "general_attention")):
            text = strip_comments((root / "src/cuda" / path).read_text())
            if SM90_ONLY.search(text):
                found.add(path.as_posix())
                if path.as_posix() not in NEEDS_SM90:
                    yield f"src/cuda/{path}: {SM90_ONLY.search(text)[0]} is not for every GPU"
    for name in sorted(NEEDS_SM90 - found):
        if (root / "src/cuda" / name).is_file():
            yield f"src/cuda/{name}: no longer needs its place in NEEDS_SM90"


def check(root: Path) -> Iterator[str]:
    for rule in (check_includes, check_cycles, check_types, check_namespaces, check_any):
        yield from rule(root)


if __name__ == "__main__":
    run_check(check)
