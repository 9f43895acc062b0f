// SPDX-License-Identifier: Apache-2.0
#include "cpu/fused_qkv_matmul/operands.h"

#include <array>

#include "quire/element.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kScaleBlock = 128;

std::array<std::uint16_t, 256> make_bf16_table(DType dtype) {
  std::array<std::uint16_t, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    store_element(&table[byte], DType::bf16, 0, load_element(&byte, dtype, 0));
  }
  return table;
}

// Every fp8 number is a bf16 number.
const std::uint16_t* bf16_table(DType dtype) {
  static const std::array<std::uint16_t, 256> e4m3 = make_bf16_table(DType::fp8_e4m3);
  static const std::array<std::uint16_t, 256> e5m2 = make_bf16_table(DType::fp8_e5m2);
  if (!is_fp8(dtype)) return nullptr;
  return dtype == DType::fp8_e4m3 ? e4m3.data() : e5m2.data();
}

DType dtype_of(const Weight& weight) {
  return weight.packing == WeightPacking::none ? weight.data.dtype : weight.packed.dtype;
}

Codes codes_of(const Weight& weight) {
  switch (weight.format) {
    case WeightFormat::dense:
      return dtype_of(weight) == DType::f32   ? Codes::f32
             : dtype_of(weight) == DType::f16 ? Codes::f16
                                              : Codes::bf16;
    case WeightFormat::fp8:
      return dtype_of(weight) == DType::fp8_e4m3 ? Codes::fp8_e4m3 : Codes::fp8_e5m2;
    case WeightFormat::int4:
      return Codes::int4;
    case WeightFormat::gptq:
    case WeightFormat::gptq_v2:
      return Codes::gptq;
    case WeightFormat::awq:
      return Codes::awq;
    case WeightFormat::q4_k:
      return Codes::q4_k;
    case WeightFormat::q5_k:
      return Codes::q5_k;
    case WeightFormat::q6_k:
      return Codes::q6_k;
    default:
      return Codes::blocks_32;
  }
}

const std::byte* bytes_of(const TensorView& tensor) {
  return tensor.as<const std::byte>();
}

// [1, 1] tensor, [N, 1] channel, else [ceil(N/128), ceil(K/128)] block.
void set_fp8_scale(const TensorView& scale, WeightView& view) {
  view.scale_n_stride = scale.shape[0] == 1 ? 0 : scale.strides[0];
  view.scale_k_stride = scale.shape[1] == 1 ? 0 : scale.strides[1];
  const bool per_row = scale.shape[1] == 1 && scale.shape[0] == view.rows;
  view.scale_rows = per_row ? 1 : kScaleBlock;
  view.group = scale.shape[1] == 1 ? view.columns : kScaleBlock;
}

// int4 has [N, K/g] scales and zeros, gptq and awq [K/g, N].
void set_groups(const Weight& weight, WeightView& view) {
  const int n_axis = weight.format == WeightFormat::int4 ? 0 : 1;
  view.group = weight.group_size;
  view.scale_n_stride = weight.scale->strides[static_cast<std::size_t>(n_axis)];
  view.scale_k_stride = weight.scale->strides[static_cast<std::size_t>(1 - n_axis)];
  if (!weight.zeros.has_value()) return;
  view.zeros = bytes_of(*weight.zeros);
  view.zero_n_stride = weight.zeros->strides[static_cast<std::size_t>(n_axis)];
  view.zero_k_stride = weight.zeros->strides[static_cast<std::size_t>(1 - n_axis)];
  view.zero_offset = weight.format == WeightFormat::gptq ? 1 : 0;
}

}  // namespace

WeightView weight_view(const Weight& weight) {
  WeightView view{};
  view.codes = codes_of(weight);
  view.block = find_block_format(weight.format);
  view.data = bytes_of(weight.data);
  view.row_stride = bytes_for(weight.data.dtype, weight.data.strides[0]);
  view.rows = weight.rows();
  view.columns = weight.columns();
  view.group = view.columns;
  view.scale_rows = 1;
  if (weight.packing != WeightPacking::none) {
    view.packed = packed_layout(weight, weight.perm.has_value());
    if (view.packed.group != 0) view.group = view.packed.group;
    return view;
  }
  view.to_bf16 = bf16_table(weight.data.dtype);
  if (weight.scale.has_value()) {
    view.scale = bytes_of(*weight.scale);
    view.scale_dtype = weight.scale->dtype;
  }
  if (weight.format == WeightFormat::fp8) set_fp8_scale(*weight.scale, view);
  if (weight.group_size != 0 && weight.scale.has_value()) set_groups(weight, view);
  if (view.codes == Codes::blocks_32) view.group = view.block->group;
  return view;
}

InputView input_view(const Projection& args) {
  InputView view{};
  view.data = bytes_of(args.x);
  view.dtype = args.x.dtype;
  view.row_stride = bytes_for(args.x.dtype, args.x.strides[0]);
  view.to_bf16 = bf16_table(args.x.dtype);
  if (args.weight.perm.has_value()) view.perm = args.weight.perm->as<const std::int32_t>();
  if (args.input_scale.has_value()) {
    const TensorView& scale = *args.input_scale;
    view.scale = scale.as<const float>();
    view.scale_t_stride = scale.shape[0] == 1 ? 0 : scale.strides[0];
    view.scale_k_stride = scale.shape[1] == 1 ? 0 : scale.strides[1];
  }
  return view;
}

bool fit_bf16_engine(const InputView& x, const WeightView& weight) {
  if (x.dtype != DType::bf16 && !is_fp8(x.dtype)) return false;
  if (x.perm != nullptr && x.has_block_scales()) return false;
  switch (weight.codes) {
    case Codes::f32:
    case Codes::f16:
    case Codes::q4_k:
    case Codes::q5_k:
    case Codes::q6_k:
      return false;
    default:
      return true;
  }
}

}  // namespace quire::cpu
