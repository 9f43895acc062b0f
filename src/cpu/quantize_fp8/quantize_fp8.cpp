// SPDX-License-Identifier: Apache-2.0
#include "cpu/quantize_fp8/quantize_fp8.h"

#include "cpu/quantize_fp8/kernels.h"
#include "cpu/rows/row_blocks.h"

namespace quire::cpu {

void quantize_fp8(const QuantizeFp8Args& args, const Context& context, Target target) {
  const std::int64_t columns = args.x.shape[1];
  const std::int64_t group_size = args.group_size < 0 ? columns : args.group_size;
  const std::int64_t groups_per_row = (columns + group_size - 1) / group_size;
  const QuantizeJob job{.x = args.x.as<const std::byte>(),
                        .x_dtype = args.x.dtype,
                        .x_stride = bytes_for(args.x.dtype, args.x.strides[0]),
                        .out = args.out.as<std::byte>(),
                        .out_dtype = args.out.dtype,
                        .out_stride = args.out.strides[0],
                        .scale = args.scale.as<std::byte>(),
                        .scale_dtype = args.scale.dtype,
                        .scale_row_stride = bytes_for(args.scale.dtype, args.scale.strides[0]),
                        .scale_group_stride = bytes_for(args.scale.dtype, args.scale.strides[1]),
                        .columns = columns,
                        .group_size = group_size,
                        .groups_per_row = groups_per_row,
                        .scale_upper_bound = args.scale_upper_bound,
                        .power_of_two = args.scale_rounding == ScaleRounding::power_of_two};
  const QuantizeKernels& kernels = quantize_kernels(target);
  const std::int64_t group_bytes = bytes_for(args.x.dtype, std::min(group_size, columns)) +
                                   std::min(group_size, columns) + std::int64_t{sizeof(float)};
  for_row_blocks(args.x.shape[0] * groups_per_row, group_bytes, context,
                 [&](RowBlock block, int) { kernels.quantize(job, block.first, block.last); });
}

}  // namespace quire::cpu
