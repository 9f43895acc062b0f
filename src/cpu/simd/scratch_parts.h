// SPDX-License-Identifier: Apache-2.0
// Hands out parts of a scratch buffer, each on a cache line of its own. A null buffer counts bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/simd/tile.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

class ScratchParts {
 public:
  explicit ScratchParts(std::byte* base) : base_(base) {}
  template <typename T> T* take(std::int64_t count) {
    T* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ = round_up_to(used_ + count * static_cast<std::int64_t>(sizeof(T)), 64);
    return part;
  }
  std::int64_t used() const { return used_; }

 private:
  std::byte* base_;
  std::int64_t used_ = 0;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
