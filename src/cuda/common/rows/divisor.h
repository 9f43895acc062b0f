// SPDX-License-Identifier: Apache-2.0
// Division by a number that the host knows: a multiplication and a shift on the device.
#pragma once

#include <cstdint>

#include "quire/host_device.h"

namespace quire::cuda {

class Divisor {
 public:
  Divisor() = default;
  // 1 <= value < 2^31.
  explicit Divisor(std::uint32_t value) : value_(value) {
    while ((std::uint64_t{1} << shift_) < value) ++shift_;
    magic_ = static_cast<std::uint32_t>(
        ((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift_) - value)) / value + 1);
  }

  bool operator==(const Divisor&) const = default;

  QUIRE_HOST_DEVICE std::uint32_t value() const { return value_; }

  // Exact for dividends below 2^31.
  QUIRE_HOST_DEVICE std::uint32_t quotient(std::uint32_t dividend) const {
    const auto high = static_cast<std::uint32_t>((std::uint64_t{dividend} * magic_) >> 32);
    return (high + dividend) >> shift_;
  }
  // Exact for all; slow from 2^31 on.
  QUIRE_HOST_DEVICE std::int64_t quotient_of(std::int64_t dividend) const {
    constexpr std::int64_t kLargest = 0x7fffffff;
    return dividend <= kLargest ? quotient(static_cast<std::uint32_t>(dividend))
                                : dividend / value_;
  }

 private:
  std::uint32_t value_ = 1;
  std::uint32_t magic_ = 1;
  std::uint32_t shift_ = 0;
};

}  // namespace quire::cuda
