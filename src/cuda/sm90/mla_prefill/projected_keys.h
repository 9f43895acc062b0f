// SPDX-License-Identifier: Apache-2.0
// Where projected_source.cuh finds the K and V of a chunk: rows of the gathered buffer, not pages.
#pragma once

#include <cstdint>

#include "cuda/common/runtime/tensor_map.h"

namespace quire::cuda::sm90::mla_prefill {

struct ProjectedKeys {
  TensorMap projected{};  // (column of K | V, head of the group, buffer row); boxes of 64 × 1 × 128
  TensorMap rope{};       // (column, 0, buffer row), for all heads; the same boxes
  const std::uint32_t* buffer_rows = nullptr;  // [batch]: of the chunk's first key
  // The pages that the rows came from: keys on pages that are not there are hidden.
  const std::uint32_t* table = nullptr;  // [batch, max_pages]
  std::int64_t table_stride = 0;
  int max_pages = 0;
  int page_size = 0;  // a multiple of 8
  int num_pages = 0;
};

}  // namespace quire::cuda::sm90::mla_prefill
