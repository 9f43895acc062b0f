// SPDX-License-Identifier: Apache-2.0
// Owns every buffer of a test problem, so that a test can say "nothing was written" about all of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "quire/tensor_view.h"

namespace quire::test {

class Arena {
 public:
  using Shape = std::vector<std::int64_t>;
  using Snapshot = std::vector<std::vector<std::byte>>;

  TensorView poisoned(DType dtype, const Shape& shape);  // 0xff bytes: NaN in every float type
  TensorView random(DType dtype, const Shape& shape, double amplitude = 1.0);
  TensorView filled(DType dtype, const Shape& shape, double value);
  TensorView of(DType dtype, const Shape& shape, const std::vector<double>& values);

  Snapshot snapshot() const { return {buffers_.begin(), buffers_.end()}; }
  // Position in the snapshot of the buffer that a view starts in.
  std::size_t index_of(const TensorView& view) const;

 private:
  std::deque<std::vector<std::byte>> buffers_{};
  std::uint64_t state_ = 1;
};

}  // namespace quire::test
