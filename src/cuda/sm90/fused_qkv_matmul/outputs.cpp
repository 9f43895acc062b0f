// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/fused_qkv_matmul/outputs.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

QkvOutputs make_outputs(const FusedQkvArgs& args) {
  const KvLayerView keys = args.cache.key(args.layer);
  const int q_dim = static_cast<int>(args.out.shape[1]);
  const int kv_dim = static_cast<int>(args.cache.num_kv_heads() * keys.width());
  return {
      .q = args.out.as<std::byte>(),
      .q_stride_bytes = bytes_for(args.out.dtype, args.out.strides[0]),
      .q_dtype = args.out.dtype,
      .q_dim = q_dim,
      .kv_dim = kv_dim,
      .head_dim = keys.width(),
      .columns = q_dim + (args.cache.is_mla() ? 1 : 2) * kv_dim,
      .keys = keys,
      .kv_dtype = keys.row_format.parts[0].dtype,
      .heads_are_dense = keys.num_heads == 1 || keys.head_stride_bytes == keys.row_format.row_bytes,
      .value_offset_bytes = args.cache.is_mla() ? 0 : args.cache.value(args.layer).data - keys.data,
      .row_offsets = args.row_offsets.as<const std::uint32_t>(),
      .batch = static_cast<int>(args.cache.batch()),
      .tokens = static_cast<int>(args.x.shape[0]),
      .bias = args.bias.has_value() ? args.bias->as<const std::byte>() : nullptr,
      .bias_dtype = args.bias.has_value() ? args.bias->dtype : DType::f32,
  };
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
