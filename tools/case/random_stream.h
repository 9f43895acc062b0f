// SPDX-License-Identifier: Apache-2.0
// Deterministic data. The element with logical index i depends on the seed, the tensor's name and i
// alone, so that a paged problem and its contiguous twin hold the same numbers, on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "quire/dtype.h"

namespace quire::tools {

std::uint64_t seed_of(std::string_view text, std::uint64_t seed = 0);
std::uint64_t hash_of(std::uint64_t seed, std::uint64_t index);  // splitmix64

// Bell-shaped, variance 1, bounded by ±3.47.
double normal_at(std::uint64_t seed, std::uint64_t index);
// 0 … bound - 1.
std::int64_t integer_at(std::uint64_t seed, std::uint64_t index, std::int64_t bound);

// Elements of one dtype, mean + amplitude · normal, encoded once and copied from then on. They
// repeat after kPeriod.
class RandomStream {
 public:
  static constexpr std::int64_t kPeriod = 65521;  // prime: no dimension of a problem divides it

  RandomStream(std::uint64_t seed, std::string_view tensor, DType dtype, double amplitude = 1.0,
               double mean = 0.0);

  // Elements [first, first + count) to `destination`; both even for types of 4 bits.
  void copy(std::byte* destination, std::int64_t first, std::int64_t count);

 private:
  void encode_up_to(std::int64_t count);
  // Whole bytes of types of 4 bits repeat, so many of them as of other types.
  std::int64_t period() const { return bits(dtype_) < 8 ? 2 * kPeriod : kPeriod; }

  std::uint64_t seed_;
  DType dtype_;
  double amplitude_;
  double mean_;
  std::int64_t encoded_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace quire::tools
