// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/matmul/int4/pack_order.h"

namespace quire::cuda {

Int4Source make_source(const Weight& weight) {
  // int4 has its groups along the second axis of scale and zeros, gptq and awq along the first.
  const int row_axis = weight.format == WeightFormat::int4 ? 0 : 1;
  Int4Source source{
      .format = weight.format,
      .data = weight.data.as<const std::byte>(),
      .row_stride_bytes = bytes_for(weight.data.dtype, weight.data.strides[0]),
      .rows = static_cast<int>(weight.rows()),
      .columns = static_cast<int>(weight.columns()),
      .group_size = static_cast<int>(weight.group_size),
      .scale = weight.scale->as<const std::byte>(),
      .scale_bytes = static_cast<int>(bytes_for(weight.scale->dtype, 1)),
      .scale_row_stride = weight.scale->strides[row_axis],
      .scale_group_stride = weight.scale->strides[1 - row_axis],
  };
  if (weight.zeros.has_value()) {
    source.zeros = weight.zeros->as<const std::byte>();
    source.zero_row_stride = weight.zeros->strides[row_axis];
    source.zero_group_stride = weight.zeros->strides[1 - row_axis];
  }
  return source;
}

Int4Order order_of(const Weight& packed) {
  return int4_order(packed.packed.rows, packed.packed.columns, packed.group_size,
                    packed.packed.scale_dtype);
}

}  // namespace quire::cuda
