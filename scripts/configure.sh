#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures one preset quietly: configure.sh demo|release|debug|asan-ubsan|tsan|fuzz|aarch64
# 'demo' is the release tree, but a first configure compiles CPU kernels for this processor alone and, on a machine without
# a GPU, leaves the CUDA backend out: the rest would only delay the demo. 'release' (make test) brings both back, the
# backend whenever nvcc is found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=$1
options=()
if [[ $preset == demo ]]; then
  preset=release
  if [[ ! -f build/release/CMakeCache.txt ]]; then
    options+=(-DQUIRE_CPU_TARGETS=native)
    nvidia-smi -L >/dev/null 2>&1 || options+=(-DQUIRE_CUDA=OFF)
  fi
elif [[ $preset == release ]]; then
  options+=("-DQUIRE_CUDA=${QUIRE_CUDA:-AUTO}" -DQUIRE_CPU_TARGETS=all)
fi
if [[ -n ${QUIRE_COMPILER_CACHE:-} ]]; then options+=("-DQUIRE_COMPILER_CACHE=$QUIRE_COMPILER_CACHE"); fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" "${options[@]}" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
# The one line about a backend that is left out is news; the rest of a successful configure is not.
grep -e '^-- quire: ' "$log" | sed 's/^-- //' || true
