// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/launch.h"

#include <algorithm>

#include "cuda/any/mla_prefill/decoded_part.h"
#include "cuda/common/mask/visible_range.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/softmax/score.h"
#include "cuda/sm90/mla_prefill/branch.h"

namespace quire::cuda::sm90::mla_prefill {

namespace {

class BranchKernel final : public Kernel<MlaPrefillArgs> {
 public:
  explicit BranchKernel(const MlaPrefillProblem& problem)
      : shape_(branch_shape(problem)),
        visible_(visible_range(problem.mask)),
        decoded_(problem, any::mla_prefill::DecodeKernels::fastest),
        branch_bytes_(branch_workspace_bytes(shape_)) {}

  std::int64_t workspace_bytes() const override {
    return branch_bytes_ + decoded_.workspace_bytes();
  }

  void run(const MlaPrefillArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
    const DeviceScope scope(args.q.device);
    run_branch(args, shape_, visible_, context);
    decoded_.run(args, context, static_cast<std::byte*>(context.workspace) + branch_bytes_);
  }

 private:
  BranchShape shape_;
  VisibleRange visible_;
  any::mla_prefill::DecodedPart decoded_;
  std::int64_t branch_bytes_;
};

}  // namespace

std::string refuse_branch(const MlaPrefillProblem& problem) {
  const std::string elsewhere = refuse_unless_sm90(problem.device);
  return elsewhere.empty() ? refuse_shape(problem) : elsewhere;
}

KernelPtr<MlaPrefillArgs> prepare_branch(const MlaPrefillProblem& problem) {
  return std::make_unique<const BranchKernel>(problem);
}

namespace {

// K and V of a group of heads, and sums between chunks: 128 heads of 4096 tokens and a few pages more
// rows.
constexpr std::int64_t kGroupBytes = std::int64_t{576} << 20;
// Pages that are not there are hidden eight keys at a time.
constexpr std::int64_t kHoleKeys = 8;

std::string refuse_dtypes(const MlaPrefillProblem& problem) {
  if (problem.q_dtype != DType::bf16 && problem.q_dtype != DType::f16) {
    return "q is not bf16 or f16";
  }
  if (problem.out_dtype != problem.q_dtype) return "out is not of q's dtype";
  if (problem.weight_dtype != problem.q_dtype && problem.weight_dtype != DType::fp8_e4m3) {
    return "kv_b_proj is neither of q's dtype nor e4m3";
  }
  return "";
}

// The rope columns are multiplied as numbers of q's dtype, which they must be as they stand.
std::string refuse_rope(const MlaPrefillProblem& problem) {
  const RowFormat& format = problem.cache.row_format;
  const auto first = format.locate(static_cast<std::int32_t>(problem.latent_dim));
  const auto last = format.locate(format.width() - 1);
  const RowPart& part = format.parts[static_cast<std::size_t>(first.part)];
  const bool is_exact = first.part == last.part && part.scale_source == ScaleSource::none &&
                        (part.dtype == problem.q_dtype || is_fp8(part.dtype));
  return is_exact ? "" : "the cache's rope columns are not numbers of q's dtype";
}

// Chunks that full page tables fill: behind them every plan is unused.
std::int64_t most_chunks(std::int64_t keys, std::int64_t buffer_tokens) {
  return std::max<std::int64_t>(1, (keys + buffer_tokens - 1) / buffer_tokens);
}

}  // namespace

std::int64_t BranchShape::group() const {
  const std::int64_t kept = max_chunks > 1 ? tokens * (kValue + 2) * kSumBytes : 0;
  const std::int64_t fp8 = rounds_projected() ? rows * kProjected : 0;
  const std::int64_t head_bytes =
      std::max<std::int64_t>(1, rows * kProjected * kElementBytes + fp8 + kept);
  const std::int64_t most = std::clamp<std::int64_t>(kGroupBytes / head_bytes, 1, heads);
  const std::int64_t groups = (heads + most - 1) / most;
  return (heads + groups - 1) / groups;
}

std::string refuse_shape(const MlaPrefillProblem& problem) {
  std::string dtypes = refuse_dtypes(problem);
  if (!dtypes.empty()) return dtypes;
  if (problem.nope_dim != BranchShape::kNope || problem.rope_dim != BranchShape::kRope ||
      problem.value_dim != BranchShape::kValue) {
    return "heads are not of 128 + 64 key and 128 value columns";
  }
  if (problem.latent_dim % 16 != 0) return "latent columns are no multiple of 16";
  if (problem.cache.page_size % kHoleKeys != 0) return "page_size is no multiple of 8";
  if (problem.buffer_tokens % kHoleKeys != 0) return "buffer_tokens is no multiple of 8";
  if (problem.alignment % 16 != 0) return "rows are not aligned to 16 bytes";
  std::string scale = refuse_scale(problem.scale);
  if (!scale.empty()) return scale;
  const std::string rope = refuse_rope(problem);
  return rope.empty() ? refuse_narrowed_range(problem.mask) : rope;
}

BranchShape branch_shape(const MlaPrefillProblem& problem) {
  const std::int64_t keys =
      problem.ragged.batch * problem.cache.max_pages * problem.cache.page_size;
  return {.tokens = problem.ragged.tokens,
          .heads = problem.heads,
          .latent = problem.latent_dim,
          .batch = problem.ragged.batch,
          .rows = std::min(problem.buffer_tokens, keys),
          .max_chunks = std::min(problem.max_chunks, most_chunks(keys, problem.buffer_tokens)),
          .is_fp8 = is_fp8(problem.weight_dtype),
          .has_fp8_products = problem.allow_fp8_products && problem.q_dtype == DType::bf16};
}

}  // namespace quire::cuda::sm90::mla_prefill
