// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/fused_qkv_matmul/general/launch.h"

#include <cstdint>

#include "cuda/hopper/fused_qkv_matmul/general/operands.h"
#include "cuda/hopper/store/launch.h"
#include "cuda/runtime/device_facts.h"
#include "cuda/runtime/device_scope.h"

namespace quire::cuda::hopper {
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

void launch_product(const GeneralParams& params, cudaStream_t stream) {
  const WeightFormat format = params.weight.format;
  const int few_tokens = is_plain_f32(params) ? kFewTokensF32 : kFewTokens;
  if (params.outputs.tokens <= few_tokens && !packs_along_rows(params.weight)) {
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
void round_input(const FusedQkvArgs& args, float* rounded, InputOperand& x, cudaStream_t stream) {
  constexpr std::int64_t kGgufBlock = 32;  // of q4_0 and q8_0, the two that take int8
  const std::int64_t group = args.weight.group_size != 0 ? args.weight.group_size : kGgufBlock;
  launch_round_input(x, static_cast<int>(group), rounded, stream);
  x = {.data = reinterpret_cast<const std::byte*>(rounded),
       .dtype = DType::f32,
       .stride_bytes = bytes_for(DType::f32, x.columns),
       .rows = x.rows,
       .columns = x.columns,
       .has_vectors = reinterpret_cast<std::uintptr_t>(rounded) % kVectorBytes == 0};
}

// The K or V part of the waiting rows [tokens, kv columns], as [tokens, heads, width].
void encode_rows(const FusedQkvArgs& args, const Context& context, const GeneralOutputs& outputs,
                 KvSide side) {
  const std::int64_t row_length = outputs.columns - outputs.q_dim;
  const std::int64_t width = outputs.keys.width();
  TensorView x = TensorView::contiguous(
      outputs.rows + (side == KvSide::value ? outputs.kv_dim : 0), DType::f32,
      {std::int64_t{outputs.tokens}, std::int64_t{outputs.keys.num_heads}, width}, args.x.device);
  x.strides[0] = row_length;
  const StoreArgs waiting{.x = x,
                          .row_offsets = args.row_offsets,
                          .cache = args.cache,
                          .layer = args.layer,
                          .side = side};
  hopper::store(waiting, context);
}

}  // namespace

std::string refuse_general(const FusedQkvProblem& problem) {
  const WeightPacking packing = problem.weight_packing;
  if (packing != WeightPacking::none && packing != WeightPacking::fragments_64) {
    return "the weight is packed as " + std::string(name(problem.weight_packing));
  }
  return refuse_hopper(problem.device);
}

std::int64_t general_workspace_bytes(const FusedQkvProblem& problem) {
  const std::int64_t sides = problem.cache.is_mla ? 1 : 2;
  const std::int64_t kv_columns =
      sides * problem.cache.num_kv_heads * problem.cache.row_format.width();
  const bool is_direct = stores_rows_directly(problem.cache.row_format);
  const bool is_exact = problem.activations == Activations::exact;
  return bytes_for(DType::f32, problem.ragged.tokens * ((is_exact ? 0 : problem.hidden) +
                                                        (is_direct ? 0 : kv_columns)));
}

void fused_qkv_general(const FusedQkvArgs& args, const Context& context) {
  if (args.x.shape[0] == 0) return;
  const DeviceScope scope(args.x.device);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  GeneralParams params = make_general_params(args);
  auto* workspace = static_cast<float*>(context.workspace);
  if (args.activations == Activations::int8) {
    round_input(args, workspace, params.x, stream);
    workspace += args.x.shape[0] * args.x.shape[1];
  }
  const bool is_direct = stores_rows_directly(args.cache.format());
  if (!is_direct) params.outputs.rows = workspace;
  launch_product(params, stream);
  if (is_direct) return;
  encode_rows(args, context, params.outputs, KvSide::key);
  if (!args.cache.is_mla()) encode_rows(args, context, params.outputs, KvSide::value);
}

}  // namespace quire::cuda::hopper
