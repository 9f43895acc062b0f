// SPDX-License-Identifier: Apache-2.0
// What the tests of one target share: one run of each test for every target, numbers that look for
// trouble, and the context that forces a kernel.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cpu/runtime/target.h"
#include "quire/context.h"
#include "quire/element.h"
#include "support/host_tensor.h"

namespace quire::cpu {

inline constexpr int kThreadCounts[] = {1, 2, 3, 16};
inline constexpr int kTwoThreads[] = {2};

// Skipped where the target cannot run.
class RowTarget : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_not(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
  }

  std::string kernel(const std::string& op) const {
    return "cpu/" + std::string(name(GetParam())) + "/" + op;
  }
  Context context(int num_threads) const {
    Context context;
    context.num_threads = num_threads;
    context.kernel = "cpu/" + std::string(name(GetParam())) + "/";
    return context;
  }

  // Sweeps over many problems run on two threads; tests of their own run on each count.
  std::span<const int> thread_counts_ = kTwoThreads;
};

inline const auto kEveryTarget =
    testing::Values(Target::portable, Target::avx2, Target::avx512_vnni, Target::avx512,
                    Target::amx, Target::neon, Target::neon_bf16);

inline std::string target_name(const testing::TestParamInfo<Target>& info) {
  return std::string(name(info.param));
}

enum class Numbers {
  any_bits,     // every exponent, infinities, NaN with payloads
  ordinary,     // uniform in [-4, 4]
  small_whole,  // products and quotients of these often lie in the middle between two codes
  tiny,         // scales below what a fused remainder can carry
};

inline constexpr Numbers kAllNumbers[] = {Numbers::any_bits, Numbers::ordinary,
                                          Numbers::small_whole, Numbers::tiny};

inline test::HostTensor make_numbers(Numbers numbers, DType dtype, std::vector<std::int64_t> shape,
                                     unsigned seed) {
  std::mt19937 random(seed);
  test::HostTensor tensor(dtype, std::move(shape));
  if (numbers == Numbers::any_bits) {
    for (std::byte& byte : tensor.bytes()) byte = static_cast<std::byte>(random());
    return tensor;
  }
  const TensorView view = tensor.view();
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    const double uniform = static_cast<double>(random()) / 2147483648.0 - 1.0;
    const auto whole = static_cast<double>(static_cast<std::int64_t>(random() % 127u) - 63);
    const double value = numbers == Numbers::ordinary ? 4.0 * uniform
                         : numbers == Numbers::tiny   ? uniform * 0x1p-90
                                                      : whole;
    store_element(view.data, dtype, i, value);
  }
  return tensor;
}

}  // namespace quire::cpu
