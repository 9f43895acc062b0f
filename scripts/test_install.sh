#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What takes longer than the tests of tests/install, which `make test` runs: the library compiled inside another
# project, static and shared, and the wheels of dist/ used by each CPython that built one, without a compiler, from
# another folder, without and with torch. Arguments: subproject, wheel; none: both.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

test_subproject() {
  local shared=$1 way=$2
  echo "test-install: $way, shared libraries $shared"
  cmake -D "SOURCE_DIR=$root" -D "TEST_DIR=$root/tests/install" -D GENERATOR=Ninja -D "READELF=$(command -v readelf)" \
    -D "MAKE_PROGRAM=$(command -v ninja)" -D "COMPILER=$(command -v c++)" -D FLAGS=-O1 -D "WAY=$way" \
    -D "SHARED=$shared" -D FULL=ON -D "SCRATCH_DIR=$scratch/parent" -P tests/install/build_parent.cmake \
    >"$scratch/parent.log" 2>&1 || { tail -n 40 "$scratch/parent.log" >&2; return 1; }
}

# A wheel holds one module, which needs nothing that a user would have to install: the C library alone.
inspect_wheel() {
  local wheel=$1 needed module=$scratch/module
  python3 -m zipfile -e "$wheel" "$module"
  needed=$(readelf --dynamic --wide "$module"/quire/_quire*.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | paste -sd ' ')
  echo "test-install: $wheel, $(du -h --apparent-size "$wheel" | cut -f 1), needs $needed"
  if [[ $needed =~ lib(stdc|gcc|fmt|cuda) ]] || [[ -e $module/quire.libs ]]; then
    echo "test-install: the wheel needs, or carries, a library that the module should hold" >&2
    return 1
  fi
  rm -rf "$module"
}

# Names of programs that compile: an environment where one of them can be called proves nothing.
without_compiler() {
  local name
  for name in c++ g++ cc gcc nvcc; do
    if PATH=$1 command -v "$name"; then return 1; fi
  done
}

# torch of the version that the Python tests use: that of .venv, by a path of its own behind the environment's, or for
# another CPython the same from PyPI.
add_torch() {
  local env=$1
  local version="import sys; print(sys.version_info[:2])" folder="import sysconfig; print(sysconfig.get_path('purelib'))"
  shift
  if [[ $("$env/bin/python" -c "$version") == $(.venv/bin/python -c "$version") ]]; then
    .venv/bin/python -c "$folder" >"$("$env/bin/python" -c "$folder")/torch.pth"
  else
    "$@" install --only-binary :all: "$(grep -e '^torch==' requirements/test.txt)"
  fi
}

test_wheel() {
  local python=$1 torch=$2 env=$scratch/env
  rm -rf "$env"
  "$python" -m venv "$env"
  without_compiler "$env/bin"
  local pip=(env "PATH=$env/bin" "$env/bin/python" -m pip --quiet --disable-pip-version-check)
  "${pip[@]}" install --only-binary :all: numpy
  "${pip[@]}" install --no-index --find-links dist quire
  if [[ $torch == present ]]; then add_torch "$env" "${pip[@]}"; fi
  # A folder without the checkout, and no programs but the environment's.
  (cd "$scratch" && env -i PATH="$env/bin" HOME="$scratch" "$env/bin/python" "$root/tests/install/use_wheel.py" \
    "$torch" "$backends")
}

what=${*:-subproject wheel}
if [[ $what == *subproject* ]]; then
  test_subproject OFF add_subdirectory
  test_subproject ON FetchContent
fi
if [[ $what == *wheel* ]]; then
  backends=$(sed -n 's/^set(quire_BACKENDS "\(.*\)")$/\1/p' build/wheels/prefix/lib*/cmake/quire/quireConfig.cmake)
  for wheel in dist/*.whl; do
    build/wheels/tools/bin/python -m auditwheel show "$wheel" | grep -e 'consistent with' -A 2
    inspect_wheel "$wheel"
  done
  while read -r _ python; do
    test_wheel "$python" absent
    test_wheel "$python" present
  done <build/wheels/interpreters
fi
echo "test-install: passed"
