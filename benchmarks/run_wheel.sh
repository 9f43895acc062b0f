#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures a machine that has torch but no build tree, nor a way to install anything.
#   benchmarks/run_wheel.sh build [PYTHON]   here: a wheel for that Python's version, into build/wheelhouse
#   benchmarks/run_wheel.sh run [OPTIONS]    there, in a copy of the tree with build/wheelhouse: benchmarks.cpu
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

run() {
  local unpacked
  unpacked=$(mktemp -d)
  # shellcheck disable=SC2064  # now: the variable is gone when the trap runs
  trap "rm -rf '$unpacked'" EXIT
  python3 -m zipfile -e "$wheelhouse"/quire-*.whl "$unpacked"
  QUIRE_COMMIT=$(<"$wheelhouse/commit") PYTHONPATH=$unpacked PYTHONUNBUFFERED=1 python3 -m benchmarks.cpu "$@"
}

case ${1:-} in
  build | run) command=$1 && shift && "$command" "$@" ;;
  *) sed -n '3,5s/^# *//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
