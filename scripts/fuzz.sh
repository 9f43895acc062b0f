#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzzer for some seconds: fuzz.sh SECONDS [target...]
# New inputs that reach new code are kept under build/fuzz/found and taken up again; those that break something under
# build/fuzz/broken.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-60}
shift || true
targets=("$@")
if [[ ${#targets[@]} == 0 ]]; then targets=(validate case_json cpu_ops); fi

export QUIRE_POISON_SCRATCH=1
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}
broken=build/fuzz/broken
status=0
for target in "${targets[@]}"; do
  program=build/fuzz/tests/fuzz/fuzz_$target
  found=build/fuzz/found/$target
  mkdir -p "$found" "$broken"
  log=build/fuzz/fuzz_$target.log
  if "$program" -max_total_time="$seconds" -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="$broken/${target}_" "$found" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "fuzz_$target: $inputs inputs, nothing broken"
  else
    status=1
    tail -n 40 "$log"
    input=$(sed -n 's/^.*Test unit written to //p' "$log" | tail -n 1)
    echo "fuzz_$target: broken by an input; again: $program $input"
  fi
done
exit $status
