#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes dist/*.whl: one wheel for each CPython before 3.12 and one for all from 3.12 on, of the interpreters that are
# found here (python3.10 … on PATH, .venv's, or those that PYTHONS names). The library, with the CUDA backend where
# there is nvcc, is compiled once; an interpreter costs only its module. auditwheel gives each wheel the lowest tag
# that its symbols allow. CMAKE_ARGS: further options of cmake, for the library and the modules.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "wheel: $*"; }
jobs=${JOBS:-$(nproc)}
work=$PWD/build/wheels
library=$PWD/build/library # as deep as the trees of the presets: a compiler cache may take their objects
prefix=$work/prefix
tools=$work/tools

# One word per ABI that a wheel would be for: "3.11 PATH", or "abi3 PATH" from 3.12 on; the first of each is taken.
find_interpreters() {
  local candidates=() seen=" " python abi
  read -ra candidates <<<"${PYTHONS:-python3.10 python3.11 .venv/bin/python python3.12 python3.13 python3.14}"
  for python in "${candidates[@]}"; do
    abi=$("$python" -c 'import os, sys, sysconfig
header = os.path.join(sysconfig.get_path("include"), "Python.h")
assert sys.implementation.name == "cpython" and sys.version_info >= (3, 10) and os.path.exists(header)
print("abi3" if sys.version_info >= (3, 12) else "%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    if [[ $seen == *" $abi "* ]]; then continue; fi
    seen+="$abi "
    echo "$abi $(command -v "$python")"
  done
}

build_library() {
  local options=()
  read -ra options <<<"${CMAKE_ARGS:-}"
  say "the library, once for all wheels"
  cmake -S . -B "$library" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$prefix" \
    "-DQUIRE_CUDA=${QUIRE_CUDA:-AUTO}" "-DQUIRE_COMPILER_CACHE=${QUIRE_COMPILER_CACHE:-ON}" -DQUIRE_BUILD_SHARED=OFF \
    -DQUIRE_BUILD_TOOL=OFF -DQUIRE_BUILD_TESTS=OFF -DQUIRE_BUILD_EXAMPLES=OFF "${options[@]}" >"$work/configure.log" ||
    { cat "$work/configure.log" >&2; exit 1; }
  grep -e '^-- quire: ' "$work/configure.log" | sed 's/^-- //' || true
  cmake --build "$library" -j "$jobs" -- --quiet
  cmake --install "$library" --component development >/dev/null
}

build_wheel() {
  local abi=$1 python=$2 settings=()
  say "$abi with $python"
  if [[ $abi == abi3 ]]; then settings+=(-C wheel.py-api=cp312); fi
  # The C++ runtime inside: that of this machine is newer than those of the systems that the wheel is for.
  PIP_CONSTRAINT=requirements/build.txt "$tools/bin/pip" --python "$python" wheel . --quiet --no-deps \
    --wheel-dir "$work/raw" -C "build-dir=$work/module-$abi" -C cmake.define.QUIRE_USE_INSTALLED=ON \
    -C "cmake.define.CMAKE_PREFIX_PATH=$prefix" "${settings[@]}" \
    -C "cmake.define.CMAKE_MODULE_LINKER_FLAGS=-static-libstdc++ -static-libgcc"
}

mkdir -p "$work" dist
rm -rf "$work/raw" dist/quire-*.whl
mapfile -t interpreters < <(find_interpreters)
if ((${#interpreters[@]} == 0)); then
  echo "wheel: no CPython from 3.10 on with its headers was found" >&2
  exit 1
fi
printf '%s\n' "${interpreters[@]}" >"$work/interpreters" # scripts/test_install.sh tries the wheels with the same ones
if [[ ! -x $tools/bin/auditwheel ]]; then
  .venv/bin/python -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check -r requirements/wheel.txt
fi
build_library
for entry in "${interpreters[@]}"; do
  read -r abi python <<<"$entry"
  build_wheel "$abi" "$python"
done
for wheel in "$work"/raw/*.whl; do
  PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair --wheel-dir dist "$wheel" >"$work/auditwheel.log" 2>&1 ||
    { cat "$work/auditwheel.log" >&2; exit 1; }
done
for abi in 3.10 3.11 abi3; do
  if [[ " ${interpreters[*]%% *} " != *" $abi "* ]]; then say "none for $abi: no such interpreter here"; fi
done
for wheel in dist/*.whl; do say "$wheel"; done
