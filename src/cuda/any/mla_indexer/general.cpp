// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/any/mla_indexer/launch.h"
#include "cuda/any/mla_indexer/params.h"
#include "cuda/common/runtime/device_scope.h"

namespace quire::cuda::any::mla_indexer {
namespace {

constexpr std::int64_t kMaxBlocks = 264;  // two for each SM of an H200
constexpr std::int64_t kMaxScratchBytes = std::int64_t{64} << 20;

struct Work {
  std::int64_t capacity;  // keys of a row of scratch
  std::int64_t blocks;

  std::int64_t bytes() const {
    return capacity * blocks * static_cast<std::int64_t>(sizeof(std::uint32_t));
  }
};

// One row of scratch at least, however long.
Work divide(std::int64_t tokens, std::int64_t max_pages, std::int64_t page_size) {
  const std::int64_t capacity = max_pages * page_size;
  const std::int64_t row_bytes =
      std::max<std::int64_t>(1, capacity * static_cast<std::int64_t>(sizeof(std::uint32_t)));
  const std::int64_t fitting = std::max<std::int64_t>(1, kMaxScratchBytes / row_bytes);
  return {.capacity = capacity, .blocks = std::min({kMaxBlocks, tokens, fitting})};
}

std::int64_t workspace_bytes(const MlaIndexerProblem& problem) {
  return divide(problem.ragged.tokens, problem.cache.max_pages, problem.cache.page_size).bytes();
}

IndexerParams make_params(const MlaIndexerArgs& args) {
  IndexerParams params{.q = plain_rows(args.q),
                       .tokens = args.q.shape[0],
                       .heads = static_cast<std::int32_t>(args.q.shape[1]),
                       .q_scale = args.q_scale.as<const float>(),
                       .q_scale_token_stride = args.q_scale.strides[0],
                       .q_scale_head_stride = args.q_scale.strides[1],
                       .row_offsets = args.row_offsets.as<const std::uint32_t>(),
                       .keys = row_reader(args.cache.key(args.layer)),
                       .is_causal = args.mask.root().kind == MaskKind::causal,
                       .tokens_per_key = args.tokens_per_key,
                       .top_k = args.top_k,
                       .out = args.out.as<std::int32_t>(),
                       .out_stride = args.out.strides[0]};
  if (args.scores.has_value()) {
    params.scores = args.scores->as<float>();
    params.scores_stride = args.scores->strides[0];
  }
  return params;
}

void run(const MlaIndexerArgs& args, const Context& context) {
  const DeviceScope scope(args.q.device);
  if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
  const Work work = divide(args.q.shape[0], args.cache.max_pages(), args.cache.page_size());
  IndexerParams params = make_params(args);
  params.ranks = static_cast<std::uint32_t*>(context.workspace);
  params.capacity = work.capacity;
  params.num_blocks = static_cast<std::int32_t>(work.blocks);
  launch_indexer(params, static_cast<cudaStream_t>(context.stream));
  score_positions(args, context);
}

}  // namespace

void score_positions(const MlaIndexerArgs& args, const Context& context) {
  if (!args.scores.has_value()) return;
  launch_scores(make_params(args), static_cast<cudaStream_t>(context.stream));
}

KernelPtr<MlaIndexerArgs> prepare_general(const MlaIndexerProblem& problem) {
  return std::make_unique<const PlainKernel<MlaIndexerArgs>>(run, workspace_bytes(problem));
}

}  // namespace quire::cuda::any::mla_indexer
