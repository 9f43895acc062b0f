// SPDX-License-Identifier: Apache-2.0
// The weight of a projection case.
//   "weight": {"format": "int4", "group_size": 64, "zeros": true}
#pragma once

#include <cstdint>

#include "quire/weight.h"
#include "tools/case/built.h"
#include "tools/case/fields.h"

namespace quire::tools {

enum class WeightScale : std::uint8_t { tensor, channel, block };  // fp8

struct WeightSpec {
  WeightFormat format = WeightFormat::dense;
  DType dtype = DType::bf16;  // dense, fp8
  WeightScale scale = WeightScale::tensor;
  DType scale_dtype = DType::f32;
  std::int64_t group_size = 128;
  bool has_zeros = false;
  std::int64_t largest_zero = 15;  // int4, whose zeros are bytes
  bool has_perm = false;

  double bytes(std::int64_t rows, std::int64_t columns) const;  // stored numbers and scales
};

WeightSpec read_weight(const Fields& fields);

// Numbers about columns^-0.5 large, so that the products are about 1.
Weight build_weight(Memory& memory, const WeightSpec& spec, std::int64_t rows, std::int64_t columns,
                    std::uint64_t seed);

}  // namespace quire::tools
