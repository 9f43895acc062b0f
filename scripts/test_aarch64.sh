#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The aarch64 kernels on a Debian or Ubuntu machine of another architecture: cross-compiled, then the C++ tests and
# `quire check` of every target under qemu's emulation, which is some twenty times slower than a processor.
#   test_aarch64.sh [LARGE [SMALL]]   cases up to SMALL MFLOP (0.2) run on every target, larger ones on one target each,
#                                     those of more than LARGE (60), which are for a GPU's tiles, on none
# On an aarch64 machine `make test` runs the same natively.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

large=${1:-60}
small=${2:-0.2}
jobs=${JOBS:-$(nproc)}
targets=(neon_bf16 neon portable)
build=build/aarch64
emulator=(qemu-aarch64 -cpu max)

fail() { echo "test-aarch64: $*" >&2; exit 1; }

missing() {
  command -v aarch64-linux-gnu-g++ >/dev/null || echo g++-aarch64-linux-gnu
  command -v qemu-aarch64 >/dev/null || echo qemu-user
  [[ -e /usr/lib/aarch64-linux-gnu/libgtest.a ]] || echo libgtest-dev:arm64
  [[ -e /usr/lib/aarch64-linux-gnu/libfmt.so ]] || echo libfmt-dev:arm64
}

# arm64 versions of two libraries stand beside the machine's own; Highway, CLI11 and nlohmann-json are headers.
install_missing() {
  local packages
  mapfile -t packages < <(missing)
  if ((${#packages[@]} == 0)); then return; fi
  [[ $(id -u) == 0 ]] || fail "please ask your administrator for: dpkg --add-architecture arm64; apt-get install ${packages[*]}"
  echo "test-aarch64: installing ${packages[*]}"
  dpkg --add-architecture arm64
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

# Each program whole: a process per test, as CTest has it, would mostly wait for the emulator to start.
run_program() {
  local program=$1 log=$build/$(basename "$1").log
  if "${emulator[@]}" "$program" --gtest_brief=1 --gtest_filter=-CpuCeiling.* >"$log" 2>&1; then
    echo "$program: $(grep -e '^\[  PASSED  \]' "$log")"
  else
    tail -n 40 "$log"
    echo "$program failed: $log"
    return 1
  fi
}

run_programs() {
  local name status=0
  for name in test_cpu fuzz/test_fuzz test_reference test_ops test_core test_pages; do
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n || status=1; done
    QUIRE_POISON_SCRATCH=1 run_program "$build/tests/$name" &
  done
  while (($(jobs -rp | wc -l) > 0)); do wait -n || status=1; done
  return $status
}

# Names of the tiny and edge cases that target number $1 checks.
cases_of() {
  "${emulator[@]}" "$build/quire" check --list | awk -v target="$1" -v count="${#targets[@]}" -v small="$small" -v large="$large" '
    $5 == "MFLOP" && $4 <= large { if ($4 <= small || dealt++ % count == target) print $1 }'
}

check_target() {
  local names
  mapfile -t names < <(cases_of "$1")
  printf '%s\n' "${names[@]}" | xargs -P "$jobs" -n 40 "${emulator[@]}" "$build/quire" check \
    --target "cpu/${targets[$1]}" >"$build/check_${targets[$1]}.log" 2>&1 && status=0 || status=1
  grep -A 3 -e '^FAILED' "$build/check_${targets[$1]}.log" || true
  awk -v target="${targets[$1]}" '/ passed, [0-9]+ failed$/ { passed += $1; failed += $3 }
    END { printf "quire check --target cpu/%s: %d passed, %d failed\n", target, passed, failed }' \
    "$build/check_${targets[$1]}.log"
  return $status
}

[[ $(uname -m) != aarch64 ]] || fail "this machine is aarch64: make test runs its kernels natively"
install_missing
scripts/configure.sh aarch64
cmake --build --preset aarch64 -j "$jobs"
failed=0
run_programs || failed=1
for index in "${!targets[@]}"; do check_target "$index" || failed=1; done
exit $failed
