// SPDX-License-Identifier: Apache-2.0
// Every compiled decode kernel: a file in variants/ for each dtype, one row of variant_table.h for the
// planner.
#pragma once

#include "cuda/common/split_kv/decode_config.h"

namespace quire::cuda::sm90::flash_attention {

// Heads up to 128 wide. Stages: what shared memory holds beside the queries and the staging of sums.
template <DType kDType, int kRows> struct DecodeD128 {
  static constexpr bool kIsFp8 = kDType == DType::fp8_e4m3;
  static constexpr DecodeConfig kConfig{.dtype = kDType,
                                        .swizzle_columns = kIsFp8 ? 1 : 2,
                                        .rows = kRows,
                                        .stages = kIsFp8 ? (kRows == 8 ? 10 : 8) : 4};
};

}  // namespace quire::cuda::sm90::flash_attention
