// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "core/block_format.h"
#include "cuda/any/fused_qkv_matmul/launch.h"
#include "cuda/any/fused_qkv_matmul/params.h"
#include "cuda/common/matmul/deferred_rows.h"
#include "cuda/common/matmul/int4/pack_order.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"

namespace quire::cuda::any::fused_qkv_matmul {

namespace {

// Up to here decoding each weight once per eight tokens costs less than tiles that are mostly empty.
constexpr int kFewTokens = 48;
constexpr int kFewTokensF32 = 24;  // nothing to decode

constexpr std::uintptr_t kVectorBytes = 16;

// gptq and awq pack along N: lanes along K would fetch a sector for each code.
bool packs_along_rows(const WeightOperand& weight) {
  return !weight.is_packed &&
         (weight.format == WeightFormat::gptq || weight.format == WeightFormat::gptq_v2 ||
          weight.format == WeightFormat::awq);
}

bool is_plain_f32(const GeneralParams& params) {
  return params.x.dtype == DType::f32 && params.x.perm == nullptr &&
         params.weight.format == WeightFormat::dense && params.weight.dtype == DType::f32;
}

// The kernel for few tokens sums K in another order than tiles.
void launch_product(const GeneralParams& params, bool batch_invariant, cudaStream_t stream) {
  const WeightFormat format = params.weight.format;
  const int few_tokens = is_plain_f32(params) ? kFewTokensF32 : kFewTokens;
  const bool are_few = !batch_invariant && params.outputs.tokens <= few_tokens;
  if (are_few && !packs_along_rows(params.weight)) {
    launch_few(params, stream);
  } else if (is_plain_f32(params)) {
    launch_tiles_f32(params, stream);
  } else if (format <= WeightFormat::fp8) {
    launch_tiles_numbers(params, stream);
  } else if (format <= WeightFormat::awq) {
    launch_tiles_groups(params, stream);
  } else {
    launch_tiles_blocks(params, stream);
  }
}

// From here on x is the rounded one, its columns in the stored order.
void round_input(const Projection& args, float* rounded, InputOperand& x, cudaStream_t stream) {
  const std::int64_t group =
      args.weight.group_size != 0 ? args.weight.group_size : block_format(args.weight.format).group;
  launch_round_input(x, static_cast<int>(group), rounded, stream);
  x = {.data = reinterpret_cast<const std::byte*>(rounded),
       .dtype = DType::f32,
       .stride_bytes = bytes_for(DType::f32, x.columns),
       .rows = x.rows,
       .columns = x.columns,
       .has_vectors = reinterpret_cast<std::uintptr_t>(rounded) % kVectorBytes == 0};
}

}  // namespace

std::string refuse_general(const FusedQkvProblem& problem) {
  const WeightPacking packing = problem.weight_packing;
  if (packing != WeightPacking::none && packing != WeightPacking::fragments_64) {
    return "the weight is packed as " + std::string(name(problem.weight_packing));
  }
  if (!problem.cache.values_match_keys) return "V's rows are not as far apart as K's";
  return refuse_unless_sm80(problem.device);
}

namespace {

std::int64_t workspace_bytes(const FusedQkvProblem& problem) {
  const std::int64_t rows =
      holds_plain_numbers(problem.cache.row_format) ? 0 : deferred_rows_bytes(problem);
  const bool is_exact = problem.activations == Activations::exact;
  return rows + (is_exact ? 0 : bytes_for(DType::f32, problem.ragged.tokens * problem.hidden));
}

void run(const Projection& args, const Context& context) {
  if (args.x.shape[0] == 0 || args.weight.rows() == 0) return;
  const DeviceScope scope(args.x.device);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  GeneralParams params = make_general_params(args);
  auto* workspace = static_cast<float*>(context.workspace);
  if (args.activations == Activations::int8) {
    round_input(args, workspace, params.x, stream);
    workspace += args.x.shape[0] * args.x.shape[1];
  }
  const bool is_direct = args.cache == nullptr || holds_plain_numbers(args.cache->format());
  if (!is_direct) params.outputs.rows = workspace;
  launch_product(params, args.batch_invariant, stream);
  if (!is_direct) store_deferred_rows(args, context, workspace);
}

}  // namespace

KernelPtr<Projection> prepare_general(const FusedQkvProblem& problem) {
  return std::make_unique<const PlainKernel<Projection>>(run, workspace_bytes(problem));
}

namespace {

constexpr int kScaleBlock = 128;

// Every row starts at a multiple of `bytes`.
bool is_aligned(const void* data, std::int64_t stride_bytes, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0 &&
         stride_bytes % bytes == 0;
}

// Of a run of numbers: f32 takes two vectors of 16 bytes.
std::int64_t run_alignment(DType dtype) {
  return bits(dtype) == 8 ? 8 : 16;
}

InputOperand input_operand(const Projection& args) {
  const TensorView& x = args.x;
  InputOperand operand{.data = x.as<const std::byte>(),
                       .dtype = x.dtype,
                       .stride_bytes = bytes_for(x.dtype, x.strides[0]),
                       .rows = static_cast<int>(x.shape[0]),
                       .columns = static_cast<int>(x.shape[1])};
  operand.has_vectors = is_aligned(x.data, operand.stride_bytes, run_alignment(x.dtype));
  if (args.input_scale.has_value()) {
    const TensorView& scale = *args.input_scale;
    operand.scale = scale.as<const float>();
    operand.scale_row_stride = scale.shape[0] == 1 ? 0 : scale.strides[0];
    operand.scale_block_stride = scale.shape[1] == 1 ? 0 : scale.strides[1];
  }
  if (args.weight.perm.has_value()) operand.perm = args.weight.perm->as<const std::int32_t>();
  return operand;
}

std::int64_t weight_alignment(const Weight& weight) {
  switch (weight.format) {
    case WeightFormat::dense:
    case WeightFormat::fp8:
      return run_alignment(weight.data.dtype);
    case WeightFormat::int4:
    case WeightFormat::gptq:
    case WeightFormat::gptq_v2:
    case WeightFormat::awq:
      return 4;  // eight codes
    default:
      return 2;  // pairs of bytes; blocks of an odd length are read byte by byte
  }
}

void add_fp8_scale(const Weight& weight, WeightOperand& operand) {
  const TensorView& scale = *weight.scale;
  const bool per_channel = scale.shape[0] == weight.rows() && scale.shape[1] == 1;
  operand.rows_per_scale = per_channel ? 1 : kScaleBlock;
  operand.columns_per_scale = kScaleBlock;
  operand.scale_row_stride = scale.shape[0] == 1 ? 0 : scale.strides[0];
  operand.scale_column_stride = scale.shape[1] == 1 ? 0 : scale.strides[1];
}

// int4 has its groups along the second axis of scale and zeros, gptq and awq along the first.
void add_groups(const Weight& weight, WeightOperand& operand) {
  const std::size_t row_axis = weight.format == WeightFormat::int4 ? 0 : 1;
  operand.columns_per_scale = static_cast<int>(weight.group_size);
  operand.scale_row_stride = weight.scale->strides[row_axis];
  operand.scale_column_stride = weight.scale->strides[1 - row_axis];
  if (!weight.zeros.has_value()) return;
  operand.zeros = weight.zeros->as<const std::byte>();
  operand.zeros_row_stride = weight.zeros->strides[row_axis];
  operand.zeros_column_stride = weight.zeros->strides[1 - row_axis];
}

WeightOperand packed_operand(const Weight& weight) {
  return {.data = weight.data.as<const std::byte>(),
          .format = weight.format,
          .rows = static_cast<int>(weight.rows()),
          .columns = static_cast<int>(weight.columns()),
          .scale_dtype = weight.packed.scale_dtype,
          .is_packed = true,
          .order = order_of(weight)};
}

WeightOperand weight_operand(const Weight& weight) {
  if (weight.packing != WeightPacking::none) return packed_operand(weight);
  const TensorView& data = weight.data;
  WeightOperand operand{.data = data.as<const std::byte>(),
                        .format = weight.format,
                        .dtype = data.dtype,
                        .stride_bytes = bytes_for(data.dtype, data.strides[0]),
                        .rows = static_cast<int>(weight.rows()),
                        .columns = static_cast<int>(weight.columns())};
  operand.has_vectors = is_aligned(data.data, operand.stride_bytes, weight_alignment(weight));
  if (!weight.scale.has_value()) return operand;
  operand.scale = weight.scale->as<const std::byte>();
  operand.scale_dtype = weight.scale->dtype;
  if (weight.format == WeightFormat::fp8) {
    add_fp8_scale(weight, operand);
  } else {
    add_groups(weight, operand);
  }
  return operand;
}

GeneralOutputs outputs_of(const Projection& args) {
  const int q_dim = static_cast<int>(args.out.shape[1]);
  GeneralOutputs outputs{
      .q = args.out.as<std::byte>(),
      .q_stride_bytes = bytes_for(args.out.dtype, args.out.strides[0]),
      .q_dtype = args.out.dtype,
      .tokens = static_cast<int>(args.x.shape[0]),
      .q_dim = q_dim,
      .columns = q_dim,
      .has_whole_fours = q_dim % 4 == 0,
  };
  if (args.bias.has_value()) {
    outputs.bias = args.bias->as<const std::byte>();
    outputs.bias_dtype = args.bias->dtype;
  }
  if (args.cache == nullptr) return outputs;  // keys of no sequence have no rows
  const KvLayerView keys = args.cache->key(args.layer);
  const bool is_mla = args.cache->is_mla();
  outputs.kv_dim = keys.num_heads * keys.width();
  outputs.columns += (is_mla ? 1 : 2) * outputs.kv_dim;
  outputs.keys = keys;
  outputs.kv_dtype = keys.row_format.parts[0].dtype;
  outputs.value_offset_bytes = is_mla ? 0 : args.cache->value(args.layer).data - keys.data;
  outputs.row_offsets = args.row_offsets->as<const std::uint32_t>();
  outputs.has_whole_fours = outputs.has_whole_fours && keys.width() % 4 == 0;
  return outputs;
}

}  // namespace

GeneralParams make_general_params(const Projection& args) {
  return {
      .x = input_operand(args), .weight = weight_operand(args.weight), .outputs = outputs_of(args)};
}

}  // namespace quire::cuda::any::fused_qkv_matmul
