// SPDX-License-Identifier: Apache-2.0
// Scratch as aligned pieces of one block of bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/simd/tile.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Hands out aligned pieces of a block; with a null block it only counts.
class Carver {
 public:
  explicit Carver(std::byte* block) : block_(block) {}

  template <typename T> T* take(std::int64_t count) {
    T* piece = block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + used_);
    used_ += round_up_to(count * static_cast<std::int64_t>(sizeof(T)), kAlignment);
    return piece;
  }
  std::int64_t used() const { return used_; }

 private:
  static constexpr std::int64_t kAlignment = 64;

  std::byte* block_;
  std::int64_t used_ = 0;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
