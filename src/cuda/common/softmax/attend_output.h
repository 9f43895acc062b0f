// SPDX-License-Identifier: Apache-2.0
// Where finished rows of an attention go, and the sinks that end them.
#pragma once

#include <optional>

#include "quire/tensor_view.h"

namespace quire::cuda {

// A multiple of 16 bytes: what follows it in the parameters of a kernel is loaded in pairs as it would be without it.
struct alignas(16) AttendOutput {
  std::byte* out = nullptr;  // [tokens, heads, width]
  std::int64_t token_bytes = 0;
  std::int64_t head_bytes = 0;
  float* lse = nullptr;  // [tokens, heads], null: not asked for
  std::int64_t lse_token_stride = 0;
  std::int64_t lse_head_stride = 0;
  const float* sinks = nullptr;  // [heads], null: none
  std::int64_t sinks_stride = 0;
  DType dtype = DType::f32;
  std::int32_t width = 0;
};

inline AttendOutput attend_output(const TensorView& out, const std::optional<TensorView>& lse,
                                  const std::optional<TensorView>& sinks) {
  AttendOutput output{.out = out.as<std::byte>(),
                      .token_bytes = bytes_for(out.dtype, out.strides[0]),
                      .head_bytes = bytes_for(out.dtype, out.strides[1]),
                      .dtype = out.dtype,
                      .width = static_cast<std::int32_t>(out.shape[2])};
  if (lse.has_value()) {
    output.lse = lse->as<float>();
    output.lse_token_stride = lse->strides[0];
    output.lse_head_stride = lse->strides[1];
  }
  if (sinks.has_value()) {
    output.sinks = sinks->as<const float>();
    output.sinks_stride = sinks->strides[0];
  }
  return output;
}

}  // namespace quire::cuda
