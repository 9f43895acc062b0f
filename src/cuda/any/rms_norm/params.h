// SPDX-License-Identifier: Apache-2.0
// What the kernels of rms_norm receive, and which of them takes a span.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>

#include "quire/kv_layer_view.h"
#include "quire/ops/rms_norm.h"

namespace quire::cuda::any::rms_norm {

struct RmsNormParams {
  KvLayerView view;
  const std::uint32_t* row_offsets;
  const std::byte* gamma;  // [columns]
  DType gamma_dtype;
  std::int64_t columns;      // of a span
  std::int64_t token_spans;  // heads, or 1: the whole token
  double epsilon;
  double weight_offset;
  bool multiply_before_cast;
};

// Lanes that share a span and the vectors of eight columns that each of them holds.
struct SpanLayout {
  int lanes;
  int slots;
};

// Spans of whole, aligned vectors without a gap, in one part.
std::optional<SpanLayout> span_layout(const RmsNormParams& params);

void launch_spans(const RmsNormParams& params, const SpanLayout& layout, unsigned sms,
                  cudaStream_t stream);
void launch_general(const RmsNormParams& params, unsigned max_blocks, cudaStream_t stream);

}  // namespace quire::cuda::any::rms_norm
