// SPDX-License-Identifier: Apache-2.0
// What the tests of the attention ops share: an op run by the forced target and by the oracle on the
// same inputs, judged by the tolerance rule.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cpu/row_target.h"
#include "cpu/row_tolerance.h"
#include "quire/plan.h"
#include "reference/arithmetic.h"
#include "support/host_tensor.h"

namespace quire::cpu {

// Outputs of one run, as numbers and as bits.
struct Results {
  std::vector<double> out;
  std::vector<double> lse;
  std::vector<std::byte> bits;
};

inline Results read_results(const test::HostTensor& out, const test::HostTensor& lse) {
  Results run{.out = out.values(), .lse = lse.values(), .bits = out.bytes()};
  run.bits.insert(run.bits.end(), lse.bytes().begin(), lse.bytes().end());
  return run;
}

// Every output starts as poison.
inline void poison(test::HostTensor& tensor) {
  std::fill(tensor.bytes().begin(), tensor.bytes().end(), std::byte{0xff});
}

inline void expect_rule(DType out_dtype, const Results& actual, const Results& exact,
                        const Results& naive) {
  expect_within_rule(out_dtype, actual.out, exact.out, naive.out);
  expect_within_rule(DType::f32, actual.lse, exact.lse, naive.lse);
}

}  // namespace quire::cpu
