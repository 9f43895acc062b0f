#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What takes longer than the tests of tests/install, which `make test` runs: the library compiled inside another
# project, static and shared, and the wheels of dist/ used without a compiler, from another folder, without and with
# torch. Arguments: subproject, wheel; none: both.
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

# Names of programs that compile: an environment where one of them can be called proves nothing.
without_compiler() { ! (PATH=$1 command -v c++ || PATH=$1 command -v g++ || PATH=$1 command -v cc || PATH=$1 command -v nvcc); }

test_wheel() {
  local python=$1 torch=$2 env
  env=$scratch/env-$torch
  "$python" -m venv "$env"
  without_compiler "$env/bin"
  local pip=(env "PATH=$env/bin" "$env/bin/python" -m pip --quiet --disable-pip-version-check)
  "${pip[@]}" install --only-binary :all: numpy
  "${pip[@]}" install --no-index --find-links dist quire
  # The torch that the Python tests use: a path of its own, behind the environment's.
  if [[ $torch == present ]]; then
    "$root/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
      >"$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
  fi
  # A folder without the checkout, and no programs but the environment's.
  (cd "$scratch" && env -i PATH="$env/bin" HOME="$scratch" "$env/bin/python" "$root/tests/install/use_wheel.py" "$torch")
}

what=${*:-subproject wheel}
if [[ $what == *subproject* ]]; then
  test_subproject OFF add_subdirectory
  test_subproject ON FetchContent
fi
if [[ $what == *wheel* ]]; then
  build/wheels/tools/bin/python -m auditwheel show dist/*.whl | grep -e 'consistent with' -A 2
  test_wheel .venv/bin/python absent
  test_wheel .venv/bin/python present
fi
echo "test-install: passed"
