// SPDX-License-Identifier: Apache-2.0
// A cache layer whose rows a kernel reads as fp32, and whether they can be read eight columns at a
// time.
#pragma once

#include "quire/kv_layer_view.h"
#include "quire/tensor_view.h"

namespace quire::cuda {

struct RowReader {
  KvLayerView view{};
  // Eight columns from a multiple of eight on are one aligned vector of one part with one scale.
  bool reads_vec8 = false;
};

RowReader row_reader(const KvLayerView& view);

// Rows [.., .., width] of a plain tensor.
struct PlainRows {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int32_t width = 0;
  std::int64_t token_bytes = 0;
  std::int64_t head_bytes = 0;
  bool reads_vec8 = false;
};

PlainRows plain_rows(const TensorView& tensor);  // [tokens, heads, width]

}  // namespace quire::cuda
