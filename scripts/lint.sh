#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Format, clang-tidy on every source of the library, tool and bindings, then the lint tests.
# Arguments, if any, are the sources clang-tidy looks at.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in clang-format clang-tidy; do
  command -v "$tool" >/dev/null 2>&1 || { echo "lint: please install $tool" >&2; exit 1; }
done

echo "lint: clang-format"
scripts/source_files.sh | xargs --no-run-if-empty clang-format --dry-run -Werror

echo "lint: clang-tidy"
if (($# == 0)); then
  mapfile -t sources < <(scripts/source_files.sh | grep -E '^(src|tools|bindings)/.*\.cpp$' || true)
else
  sources=("$@")
fi
if ((${#sources[@]} > 0)); then
  # Commands of their own: clang cannot read the precompiled headers of g++.
  cmake --preset release -B build/lint -DQUIRE_CUDA=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
  printf '%s\n' "${sources[@]}" |
    xargs -P "$(nproc)" -n 1 clang-tidy --quiet --warnings-as-errors='*' -p build/lint 2>/dev/null
fi

echo "lint: layering, sizes, licences, names, paths"
ctest --preset release -L lint
