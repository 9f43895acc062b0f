// SPDX-License-Identifier: Apache-2.0
// Cuts a caller's workspace into arrays. Over a null base it only counts, so that the plan's number
// and the launch's addresses come from one list.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/workspace.h"

namespace quire::cuda {

class Carver {
 public:
  explicit Carver(void* base = nullptr) : base_(static_cast<std::byte*>(base)) {}

  template <typename T> T* take(std::int64_t count) {
    const std::int64_t offset = bytes_;
    const std::int64_t wanted = count * static_cast<std::int64_t>(sizeof(T));
    bytes_ += (wanted + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + offset);
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  std::int64_t bytes_ = 0;
};

// How many `b` hold `a`.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace quire::cuda
