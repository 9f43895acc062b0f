# SPDX-License-Identifier: Apache-2.0
"""The house rules of src/cuda: an op includes its own folder and common/, a type name means one thing, a namespace is a
folder, and what is compiled for every GPU has no instruction that only sm_90 has."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from source_tree import list_cpp_files, run_check

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)

# The memory-bound ops of any/, which are all declared in one header.
COMPANIONS = "any/companions.h"
COMPANION_OPS = {
    "any/compress_keys", "any/copy_pages", "any/index_rows", "any/merge_states", "any/quantize_fp8", "any/remap_sparse_indices",
    "any/rms_norm", "any/rope", "any/row_offsets",
}  # fmt: skip
# An op that runs another op: only that one's launch.h. (who, whom)
COMPOSED = {
    ("sm90/flash_attention", COMPANIONS),  # cascade: two attentions, merged
    ("any/mla_prefill", "any/mla_decode"),  # sequences of a mixed batch that are decoded
    ("any/mla_prefill", "sm90/mla_decode"),
    ("sm90/mla_prefill", COMPANIONS),  # queries that are rotated on their own
    ("common/matmul", "any/store"),  # K and V rows that wait for their encoding
    ("common/mla", "any/store"),  # finished latent rows
}
# Kernels of these folders are compiled for compute_80 too (src/cuda/CMakeLists.txt).
EVERY_GPU = ("any/", "common/general_attention/", "common/mla/")
# Instructions that a GPU before sm_90 does not have, and headers of nothing else. They may stand between GUARD and #endif.
SM90_ONLY = re.compile(
    r"cp\.async\.bulk|mbarrier|wgmma|setmaxnreg|griddepcontrol|cudaGridDependencySynchronize"
    r"|cudaTriggerProgrammaticLaunchCompletion|fence_view_async|cluster_|stmatrix|SM90_|common/pipeline/|mma/wgmma"
)
GUARD = re.compile(r"^#if defined\(__CUDA_ARCH__\) && __CUDA_ARCH__ >= 900\n.*?^#endif", re.M | re.S)
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
    is_launch = target.endswith("/launch.h") or target == COMPANIONS
    if mine in COMPANION_OPS and target == COMPANIONS:
        return None
    if (mine, other) in COMPOSED:
        return None if is_launch else f"{mine} may include only launch.h of {other}, not {target}"
    if mine.startswith("sm90/") and other == "any/" + mine.split("/")[1]:
        return None
    if mine.startswith("any/") and other == "sm90/" + mine.split("/")[1]:  # which kernel takes a call is decided in any/
        return None if is_launch and path.endswith(".cpp") else f"{mine} may include only launch.h of {other}, in a .cpp"
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
    if path.as_posix() == COMPANIONS:
        return "quire::cuda::any"
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
    """What is compiled for every GPU, with all that it includes, has no instruction of sm_90 outside of a guard."""
    folder = root / "src/cuda"
    waiting = [path.as_posix() for path in files_of(root) if path.as_posix().startswith(EVERY_GPU) and path.suffix != ".cpp"]
    included_by = dict.fromkeys(waiting, "")
    while waiting:
        path = waiting.pop()
        text = (folder / path).read_text()
        found = SM90_ONLY.search(GUARD.sub("", strip_comments(text)))
        if found:
            through = f" (included by {included_by[path]})" if included_by[path] else ""
            yield f"src/cuda/{path}: {found[0]} is not for every GPU{through}"
        for target in INCLUDE.findall(text):
            name = target.removeprefix("cuda/")
            if name != target and name not in included_by and (folder / name).is_file():
                included_by[name] = path
                waiting.append(name)


def check(root: Path) -> Iterator[str]:
    for rule in (check_includes, check_cycles, check_types, check_namespaces, check_any):
        yield from rule(root)


if __name__ == "__main__":
    run_check(check)
