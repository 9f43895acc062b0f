# SPDX-License-Identifier: Apache-2.0
"""A folder includes only what stands after its arrow in docs/architecture.md."""

import re
from collections.abc import Iterator
from pathlib import Path

from source_tree import list_cpp_files, run_check

API, API_OPS, API_C = "include/quire", "include/quire/ops", "include/quire/c"

# The public headers of the ops only declare: backends may name an op's argument struct, core may not.
ALLOWED = {
    API: {API},
    API_OPS: {API, API_OPS},
    API_C: {API_C},  # C: no C++ header
    "src/core": {API, "src/core"},
    "src/pages": {API, "src/core", "src/pages"},
    "src/reference": {API, API_OPS, "src/core", "src/reference"},
    "src/cpu": {API, API_OPS, "src/core", "src/cpu"},
    "src/cuda": {API, API_OPS, "src/core", "src/cuda"},
    "src/ops": {API, API_OPS, "src/core", "src/reference", "src/cpu", "src/cuda", "src/ops"},
    "bindings": {API, API_OPS, "src/ops", "bindings"},
    "bindings/c": {API, API_OPS, API_C, "src/ops", "bindings/c"},
    "tools": {API, API_OPS, "src/core", "src/reference", "src/ops", "tools"},
    # The one part of the tool that knows CUDA: it takes a problem to the GPU and back.
    "tools/device/cuda": {API, API_OPS, "src/core", "src/ops", "src/cuda", "tools", "tools/device/cuda"},
    "examples": {API, API_OPS, "examples"},
    "examples/c": {API_C, "examples/c"},
}
# One header that includes the whole API for those who want it so.
UMBRELLA = Path("include/quire/quire.h")

# The kernels of the CUDA backend, and how ops read the device's values in debug mode: no CUDA headers in either.
SEEN_BY_OPS = ("kernels.h", "device_values.h")

# What src/ops defines for every op. A backend that called it would validate or plan what its caller already has, and
# its library would need the one that needs it.
BACKENDS = ("src/cpu", "src/cuda", "src/reference")
OP_CALL = re.compile(r"(?<![\w.:>])(?:quire::)?(validate|supports)\s*\(")

# Third-party headers and the only layers that may see them; torch is allowed nowhere in C++.
THIRD_PARTY = [
    (re.compile(r"^(torch|ATen|c10|pybind11)/"), set()),
    (re.compile(r"^Python\.h$|^nanobind/"), {"bindings"}),
    (re.compile(r"^(cuda|cublas|cute/|cutlass/|nv/)"), {"src/cuda", "tools/device/cuda"}),
    (re.compile(r"^hwy/"), {"src/cpu"}),
    (re.compile(r"^(nlohmann|CLI)/"), {"tools", "tools/device/cuda", "examples"}),
    (re.compile(r"^fmt/"), set(ALLOWED) - {API, API_OPS, API_C}),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def layer_of(path: Path) -> str | None:
    name = path.as_posix()
    for layer in sorted(ALLOWED, key=len, reverse=True):
        if name.startswith(layer + "/"):
            return layer
    return None


def resolve(root: Path, includer: Path, target: str) -> Path | None:
    """The included file as a path of the tree, or None when it is not ours."""
    for base in (includer.parent, Path("include"), Path("src"), Path(".")):
        candidate = (root / base / target).resolve()
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root)
    return None


def judge(root: Path, path: Path, quote: str, target: str) -> str | None:
    layer = layer_of(path)
    if layer is None or path == UMBRELLA:
        return None
    included = resolve(root, path, target)
    if included is None:
        for pattern, layers in THIRD_PARTY:
            if pattern.search(target) and layer not in layers:
                return f"{layer} must not include <{target}>"
        return f'"{target}" is not a file of this tree' if quote == '"' else None
    target_layer = layer_of(included)
    if target_layer not in ALLOWED[layer]:
        return f"{layer} must not include {included.as_posix()}"
    if layer == "tools/device/cuda" and target_layer == "src/cuda" and "runtime" not in included.parts:
        return f"{layer} may include only runtime/ of src/cuda, not {included.as_posix()}"
    if layer == "src/ops" and target_layer == "src/cuda" and included.name not in SEEN_BY_OPS:
        return f"src/ops may include only {' and '.join(SEEN_BY_OPS)} of src/cuda, not {included.as_posix()}"
    return None


def check(root: Path) -> Iterator[str]:
    for path in list_cpp_files(root, "include", "src", "bindings", "tools", "examples"):
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            problem = judge(root, path, match[1], match[2]) if match else None
            if problem:
                yield f"{path}:{number}: {problem}"
            called = OP_CALL.search(line.partition("//")[0]) if layer_of(path) in BACKENDS else None
            if called:
                yield f"{path}:{number}: a backend must not call {called[1]}(), which src/ops defines"


if __name__ == "__main__":
    run_check(check)
