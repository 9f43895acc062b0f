// SPDX-License-Identifier: Apache-2.0
// Random weights [N, K] in the formats that fused_qkv_matmul and linear take, with the memory behind them.
#pragma once

#include <cstdint>
#include <string_view>

#include "quire/weight.h"
#include "tools/demo/tensor.h"

namespace quire::tools::demo {

class ProjectionWeight {
 public:
  // dense (bf16), fp8 (one scale per row) or int4 (groups of 32 with zero points). Entries have
  // variance 1/K, so that normalised inputs give outputs of variance 1.
  ProjectionWeight(WeightFormat format, std::int64_t rows, std::int64_t columns,
                   std::string_view name, std::uint64_t seed);

  Weight view() const;

 private:
  void quantize_fp8_rows(const Matrix& values);
  void quantize_int4_groups(const Matrix& values);

  WeightFormat format_;
  Tensor data_;
  Tensor scale_;
  Tensor zeros_;
};

}  // namespace quire::tools::demo
