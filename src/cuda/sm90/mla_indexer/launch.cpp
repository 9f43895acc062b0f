// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_indexer/launch.h"

#include <algorithm>

#include "cuda/any/mla_indexer/launch.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/sm90/mla_indexer/plan_index.h"
#include "quire/tile_builders.h"

namespace quire::cuda::sm90::mla_indexer {
namespace {

IndexPlan plan_on_device(const MlaIndexerProblem& problem) {
  return plan_index(problem, num_sms(problem.device.index));
}

IndexSplits carve_splits(Carver& carver, const IndexPlan& plan) {
  const std::int64_t rows = plan.slots() * plan.variant->config.tokens;
  return {.headers = carver.take<SplitHeader>(plan.slots()),
          .codes = carver.take<std::uint64_t>(rows * IndexConfig::kPoolKeys)};
}

GroupBoard carve_board(Carver& carver, const GroupShape& shape) {
  const std::int64_t parts = shape.parts;
  return {.heads = carver.take<std::uint64_t>(parts * GroupBoard::kMostHead),
          .floors = carver.take<std::uint64_t>(parts),
          .tails = carver.take<std::uint64_t>(parts * shape.capacity),
          .tail_counts = carver.take<std::uint32_t>(parts),
          .arrivals = carver.take<std::uint32_t>(parts)};
}

Swizzle row_swizzle(std::int64_t row_bytes) {
  return row_bytes == 128 ? Swizzle::b128 : Swizzle::b64;
}

// (column, head of a group, token, group of heads): heads of two tokens come by turns of a group.
TensorMap query_map(const TensorView& q, const IndexConfig& config) {
  constexpr int kGroup = IndexConfig::kHeadGroup;
  const GroupedTileRequest request{
      .swizzle = config.multiplies_halves() ? Swizzle::none : row_swizzle(q.shape[2]),
      .box_columns = static_cast<int>(q.shape[2]),
      .box_rows = config.tokens,
      .group_heads = kGroup,
      .box_groups = static_cast<int>(q.shape[1] / kGroup),
      .l2_promotion = L2Promotion::b256};
  return encode_tensor_map(make_grouped_tile(row_matrix_of(q), request), q.data);
}

// (column, row of the page, page)
TensorMap key_map(const KvLayerView& view, int box_rows) {
  const PageMatrix pages = page_matrix_of(view, view.row_format.parts[0].dtype, view.width());
  const TileRequest request{.swizzle = row_swizzle(view.width()),
                            .box_columns = view.width(),
                            .box_rows = box_rows,
                            .heads = HeadAxis::absent,
                            .l2_promotion = L2Promotion::b256};
  return encode_tensor_map(make_tile(pages, request), view.data);
}

// (row of the page, page)
TensorMap scale_map(const KvLayerView& view, int box_rows) {
  return encode_tensor_map(make_scale_tile(page_scale_matrix_of(view), box_rows), view.scales.data);
}

IndexParams make_params(const MlaIndexerArgs& args, const IndexPlan& plan) {
  const KvLayerView keys = args.cache.key(args.layer);
  const IndexConfig& config = plan.variant->config;
  return {.q = query_map(args.q, config),
          .keys = key_map(keys, plan.box_rows),
          .key_scales = scale_map(keys, plan.box_rows),
          .weights = {.data = args.q_scale.as<const float>(),
                      .token_stride = args.q_scale.strides[0],
                      .head_stride = args.q_scale.strides[1]},
          .batch = {.row_offsets = args.row_offsets.as<const std::uint32_t>(),
                    .cache_lengths = keys.cache_lengths,
                    .size = static_cast<int>(keys.batch),
                    .tokens = static_cast<int>(args.q.shape[0]),
                    .block_tokens = config.tokens,
                    .top_k = static_cast<int>(args.top_k),
                    .is_causal = args.mask.root().kind == MaskKind::causal,
                    .tokens_per_key = static_cast<int>(args.tokens_per_key)},
          .pages = {.keys = PageTable::of_rows(keys),
                    .scales = PageTable::of_scales(keys),
                    .box_rows = plan.box_rows},
          .out = args.out.as<std::int32_t>(),
          .out_stride = args.out.strides[0],
          .parts = plan.parts};
}

class IndexKernel final : public Kernel<MlaIndexerArgs> {
 public:
  explicit IndexKernel(const MlaIndexerProblem& problem) : plan_(plan_on_device(problem)) {}

  // What CTAs leave of rows that they share: bounded by the GPU, not by tokens or keys.
  std::int64_t workspace_bytes() const override {
    if (plan_.takes_whole_rows()) return 0;
    Carver splits;
    carve_splits(splits, plan_);
    Carver board;
    if (plan_.has_groups()) carve_board(board, plan_.group);
    return std::max(splits.bytes(),
                    board.bytes());  // which of them it is to be, the stream decides
  }

  Choices choices() const override {
    return {{"kernel", std::string(plan_.variant->name)},
            {"cluster", std::to_string(plan_.cluster.size)},
            {"group", std::to_string(plan_.group.parts)}};
  }

  void run(const MlaIndexerArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
    const DeviceScope scope(args.q.device);
    choose(args, context);
    any::mla_indexer::score_positions(args, context);
  }

 private:
  void choose(const MlaIndexerArgs& args, const Context& context) const {
    const StreamShare share = share_of(context.stream, args.q.device.index);
    const IndexPlan plan = fit_share(plan_, share);
    const auto stream = static_cast<cudaStream_t>(context.stream);
    IndexParams params = make_params(args, plan);
    if (plan.takes_whole_rows()) return plan.variant->launch_cluster(params, plan.cluster, stream);
    Carver carver(context.workspace);
    if (plan.has_groups()) {
      const GroupBoard board = carve_board(carver, plan.group);
      return plan.variant->launch_group(params, board, plan.group, stream);
    }
    params.splits = carve_splits(carver, plan);
    plan.variant->launch(params, stream);
    launch_finish(params, plan.merges, stream);
  }

  IndexPlan plan_;
};

}  // namespace

std::string refuse_index(const MlaIndexerProblem& problem) {
  const std::string reason = refuse_unless_sm90(problem.device);
  return reason.empty() ? refuse_index_problem(problem) : reason;
}

KernelPtr<MlaIndexerArgs> prepare_index(const MlaIndexerProblem& problem) {
  return std::make_unique<const IndexKernel>(problem);
}

}  // namespace quire::cuda::sm90::mla_indexer
