#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lists the C, C++ and CUDA sources that are formatted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folders=()
for folder in include src tools bindings tests examples; do
  if [[ -d $folder ]]; then folders+=("$folder"); fi
done
find "${folders[@]}" -type f \( -name '*.h' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) | sort
