// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/fused_qkv_matmul/launch.h"

#include <cstdint>

#include "cuda/any/fused_qkv_matmul/operands.h"
#include "cuda/common/matmul/deferred_rows.h"
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

}  // namespace

std::string refuse_general(const FusedQkvProblem& problem) {
  const WeightPacking packing = problem.weight_packing;
  if (packing != WeightPacking::none && packing != WeightPacking::fragments_64) {
    return "the weight is packed as " + std::string(name(problem.weight_packing));
  }
  return refuse_hopper(problem.device);
}

namespace {

std::int64_t workspace_bytes(const FusedQkvProblem& problem) {
  const std::int64_t rows =
      holds_plain_numbers(problem.cache.row_format) ? 0 : deferred_rows_bytes(problem);
  const bool is_exact = problem.activations == Activations::exact;
  return rows + (is_exact ? 0 : bytes_for(DType::f32, problem.ragged.tokens * problem.hidden));
}

void run(const FusedQkvArgs& args, const Context& context) {
  if (args.x.shape[0] == 0) return;
  const DeviceScope scope(args.x.device);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  GeneralParams params = make_general_params(args);
  auto* workspace = static_cast<float*>(context.workspace);
  if (args.activations == Activations::int8) {
    round_input(args, workspace, params.x, stream);
    workspace += args.x.shape[0] * args.x.shape[1];
  }
  const bool is_direct = holds_plain_numbers(args.cache.format());
  if (!is_direct) params.outputs.rows = workspace;
  launch_product(params, stream);
  if (!is_direct) store_deferred_rows(args, context, workspace);
}

}  // namespace

KernelPtr<FusedQkvArgs> prepare_general(const FusedQkvProblem& problem) {
  return std::make_unique<const PlainKernel<FusedQkvArgs>>(run, workspace_bytes(problem));
}

}  // namespace quire::cuda::any::fused_qkv_matmul
