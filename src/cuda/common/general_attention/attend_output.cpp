// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/general_attention/attend_output.h"

namespace quire::cuda {

AttendOutput attend_output(const TensorView& out, const std::optional<TensorView>& lse,
                           const std::optional<TensorView>& sinks) {
  AttendOutput output{.out = out.as<std::byte>(),
                      .dtype = out.dtype,
                      .width = static_cast<std::int32_t>(out.shape[2]),
                      .token_bytes = bytes_for(out.dtype, out.strides[0]),
                      .head_bytes = bytes_for(out.dtype, out.strides[1])};
  if (lse.has_value()) {
    output.lse = lse->as<float>();
    output.lse_token_stride = lse->strides[0];
    output.lse_head_stride = lse->strides[1];
  }
  if (sinks.has_value()) output.sinks = sinks->as<const float>();
  return output;
}

}  // namespace quire::cuda
