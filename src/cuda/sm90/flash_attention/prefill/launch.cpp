// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/flash_attention/launch.h"

#include <algorithm>

#include "cuda/common/paging/attention_views.h"
#include "cuda/common/prefill_attention/fp8/transpose_values.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/status.h"
#include "cuda/sm90/flash_attention/prefill/dequantized/dequantize_pages.h"
#include "cuda/sm90/flash_attention/prefill/plan_prefill.h"
#include "quire/tile_builders.h"

namespace quire::cuda::sm90::flash_attention {

namespace {

// (column, row): a block's box is its 128 rows.
TensorMap block_map(std::byte* rows, std::int64_t blocks, const TensorView& q) {
  const RowMatrix matrix{.dtype = q.dtype,
                         .num_rows = blocks * kDequantizedKeys,
                         .row_width = q.shape[2],
                         .row_stride_bytes = bytes_for(q.dtype, q.shape[2])};
  const TileRequest request{.swizzle = Swizzle::b128,
                            .box_columns = PrefillConfig::kSwizzleColumnWidth,
                            .box_rows = kDequantizedKeys,
                            .heads = HeadAxis::absent,
                            .l2_promotion = L2Promotion::b256};
  return encode_tensor_map(make_tile(matrix, request), rows);
}

}  // namespace

DequantizedKeys dequantized_keys(const FlashAttentionArgs& args, const KvLayerView& keys,
                                 const KvLayerView& values, const FlashAttentionProblem& problem,
                                 const PrefillPlan& plan, const PrefillWorkspace& space) {
  const int blocks = dequantized_blocks(problem, plan);
  const std::int64_t side_blocks = keys.batch * keys.num_heads * blocks;
  const std::int64_t side_bytes =
      side_blocks * kDequantizedKeys * bytes_for(args.q.dtype, args.q.shape[2]);
  return {.kv = PagedOperand::of(keys, values.data),
          .scales = head_scales(keys, values),
          .kv_heads = keys.num_heads,
          .blocks = blocks,
          .rows = space.rows,
          .keys = block_map(space.rows, side_blocks, args.q),
          .values = block_map(space.rows + side_bytes, side_blocks, args.q),
          .states = space.states,
          .side_blocks = static_cast<int>(side_blocks)};
}

namespace {

// K and V of the heads that are worked on together: half of an H200's L2.
constexpr std::int64_t kSectionBytes = 24 << 20;

// (column, head, token)
TileDescriptor query_tile(const TensorView& q, const PrefillPlan& plan) {
  const int rows = plan.variant->config.part_rows();
  const int heads = std::min(1 << plan.tile_heads_log2, rows);
  return make_tile(row_matrix_of(q), {.swizzle = Swizzle::b128,
                                      .box_columns = PrefillConfig::kSwizzleColumnWidth,
                                      .box_rows = rows / heads,
                                      .box_heads = heads,
                                      .l2_promotion = L2Promotion::b256});
}

// (column, row of the page, KV head, page)
TensorMap page_map(const KvLayerView& view, std::int64_t columns, const PrefillPlan& plan) {
  const PrefillConfig& config = plan.variant->config;
  const TileRequest request{.swizzle = Swizzle::b128,
                            .box_columns = config.copied_columns(),
                            .box_rows = plan.box_rows,
                            .l2_promotion = L2Promotion::b256};
  return encode_tensor_map(make_tile(page_matrix_of(view, config.cache_dtype, columns), request),
                           view.data);
}

// Where dequantized rows do not hold them already.
HeadScales make_scales(const KvLayerView& keys, const KvLayerView& values,
                       const PrefillPlan& plan) {
  if (plan.path == PrefillPath::dequantized || plan.path == PrefillPath::dequantizing) return {};
  return head_scales(keys, values);
}

PrefillParams make_params(const FlashAttentionArgs& args, const KvLayerView& keys,
                          const KvLayerView& values, const PrefillPlan& plan) {
  const auto heads = static_cast<int>(args.q.shape[1]);
  const DType stored = plan.variant->config.cache_dtype;
  const std::int64_t key_bytes = 2 * bytes_for(stored, args.q.shape[2]);  // its V row too
  return {.q = encode_tensor_map(query_tile(args.q, plan), args.q.data),
          .row_offsets = args.row_offsets.as<const std::uint32_t>(),
          .cache_lengths = keys.cache_lengths,
          .spans = {.end = keys.key_lengths},
          .batch = static_cast<int>(keys.batch),
          .tile_heads_log2 = plan.tile_heads_log2,
          .head_tiles = heads >> plan.tile_heads_log2,
          .kv_head_tiles = (heads / keys.num_heads) >> plan.tile_heads_log2,
          .section_keys = static_cast<int>(kSectionBytes / key_bytes),
          .mask = {},  // set by the caller, from the summary
          .scores = score_rules(args),
          .scales = make_scales(keys, values, plan),
          .outputs = attend_output(args.out, args.lse, {})};
}

PagedKeys make_keys(const FlashAttentionArgs& args, const KvLayerView& keys,
                    const KvLayerView& values, const PrefillPlan& plan) {
  return {.keys = page_map(keys, args.q.shape[2], plan),
          .values = page_map(values, args.out.shape[2], plan),
          .pages = PageTable::of_rows(keys),
          .box_rows = plan.box_rows};
}

// Pages [page, KV head, row, column] in the workspace, in place of those of `view`.
KvLayerView dequantized_view(KvLayerView view, std::byte* pages, std::int64_t row_bytes,
                             std::uint32_t* table, const PrefillPlan& plan) {
  view.data = pages;
  view.num_pages = view.batch * plan.columns;
  view.token_stride_bytes = row_bytes;
  view.head_stride_bytes = view.page_size * row_bytes;
  view.page_stride_bytes = view.num_heads * view.head_stride_bytes;
  view.page_table = table;
  view.page_table_stride = plan.columns;
  view.max_pages = plan.columns;
  return view;
}

void launch_dequantized(const FlashAttentionArgs& args, const KvLayerView& keys,
                        const KvLayerView& values, const PrefillPlan& plan,
                        const PrefillWorkspace& space, const PrefillParams& params,
                        const PrefillLaunch& where) {
  const DType dtype = args.q.dtype;
  dequantize_pages({.keys = row_reader(keys),
                    .values = row_reader(values),
                    .key_width = static_cast<int>(args.q.shape[2]),
                    .value_width = static_cast<int>(args.out.shape[2]),
                    .row_offsets = params.row_offsets,
                    .mask = params.mask,
                    .block_keys = plan.variant->config.block_keys,
                    .columns = plan.columns,
                    .dtype = dtype,
                    .dequantized_keys = space.keys,
                    .dequantized_values = space.values,
                    .table = space.table},
                   where.stream);
  const KvLayerView from =
      dequantized_view(keys, space.keys, bytes_for(dtype, args.q.shape[2]), space.table, plan);
  const KvLayerView to = dequantized_view(values, space.values, bytes_for(dtype, args.out.shape[2]),
                                          space.table, plan);
  plan.variant->launch(params, make_keys(args, from, to, plan), where);
}

// (byte, column of V): a block's box is all that transpose_values() wrote for it.
TensorMap transposed_map(std::byte* transposed, std::int64_t blocks) {
  const RowMatrix matrix{.dtype = DType::fp8_e4m3,
                         .num_rows = blocks * kTransposedColumns,
                         .row_width = kTransposedKeys,
                         .row_stride_bytes = kTransposedKeys};
  const TileRequest request{.swizzle = Swizzle::b128,
                            .box_columns = kTransposedKeys,
                            .box_rows = kTransposedColumns,
                            .heads = HeadAxis::absent,
                            .l2_promotion = L2Promotion::b256};
  return encode_tensor_map(make_tile(matrix, request), transposed);
}

// Of V: all, or what the tiles come to first, a section of KV heads. The kernel itself transposes the rest.
TransposedBefore transposed_before(const KvLayerView& keys, const PrefillPlan& plan,
                                   const PrefillParams& params, int blocks) {
  if (!plan.transposes_ahead) {
    return {.sequences = static_cast<int>(keys.batch), .heads = keys.num_heads};
  }
  const int heads = params.section_keys / std::max(blocks * kTransposedKeys, 1);
  return {.sequences = 1, .heads = std::clamp(heads, 1, keys.num_heads)};
}

void launch_fp8_path(const FlashAttentionArgs& args, const KvLayerView& keys,
                     const KvLayerView& values, const PrefillPlan& plan, int blocks,
                     const PrefillWorkspace& space, const PrefillParams& params,
                     const PrefillLaunch& where) {
  const TransposedBefore before = transposed_before(keys, plan, params, blocks);
  transpose_values({.values = values,
                    .row_offsets = params.row_offsets,
                    .mask = params.mask,
                    .transposed = space.transposed,
                    .blocks = blocks,
                    .part = before},
                   where.stream);
  TransposedKeys from{
      .pages = make_keys(args, keys, values, plan),
      .values = transposed_map(space.transposed, keys.batch * blocks * keys.num_heads),
      .blocks = blocks,
      .kv_heads = keys.num_heads,
      .before = before,
      .done = space.states,
      .taken = space.states + keys.batch * keys.num_heads};
  from.pages.pages = from.pages.pages.cut(plan.columns);
  plan.variant->launch_fp8(params, from, where);
}

// CTAs that dequantize for each other must all run at once: no more than the stream has SMs.
int blocks_at_once(const PrefillPlan& plan, const Context& context, Device device) {
  if (plan.path != PrefillPath::dequantizing) return plan.blocks;
  return std::min(plan.blocks, share_of(context.stream, device.index).num_sms);
}

class PrefillKernel final : public Kernel<FlashAttentionArgs> {
 public:
  explicit PrefillKernel(const FlashAttentionProblem& problem)
      : problem_(launch_part(problem, scores_of(problem))),
        plan_(plan_prefill(problem_, scores_of(problem), num_sms(problem.device.index))),
        parts_(num_parts(problem, problem_)) {}

  std::int64_t workspace_bytes() const override { return PrefillWorkspace(problem_, plan_).bytes; }

  Choices choices() const override {
    Choices choices = {{"kernel", std::string(plan_.variant->name)},
                       {"blocks", std::to_string(plan_.blocks)}};
    if (plan_.path == PrefillPath::dequantized) choices.emplace_back("cache", "dequantized");
    if (plan_.path == PrefillPath::dequantizing)
      choices.emplace_back("cache", "dequantized beside");
    if (plan_.path == PrefillPath::fp8) {
      choices.emplace_back("values", plan_.transposes_ahead ? "transposed ahead" : "transposed");
    }
    if (plan_.path == PrefillPath::transposing) choices.emplace_back("values", "transposed beside");
    if (plan_.cuts_tail) choices.emplace_back("last tiles", "cut");
    if (parts_ > 1) choices.emplace_back("parts of the batch", std::to_string(parts_));
    return choices;
  }

  void run(const FlashAttentionArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0) return;
    const auto [keys, values] = attention_views(args);
    const DeviceScope scope(args.q.device);
    if (parts_ == 1) return run_part(args, keys, values, context);
    const std::int64_t most = std::max<std::int64_t>(problem_.ragged.batch, 1);
    for (std::int64_t first = 0; first < keys.batch; first += most) {
      const std::int64_t count = std::min(most, keys.batch - first);
      FlashAttentionArgs part = args;
      part.row_offsets.data = part.row_offsets.as<std::uint32_t>() + first;
      run_part(part, keys.sequences(first, count), values.sequences(first, count), context);
    }
  }

 private:
  static std::int64_t num_parts(const FlashAttentionProblem& all,
                                const FlashAttentionProblem& part) {
    const std::int64_t most = std::max<std::int64_t>(part.ragged.batch, 1);
    return (all.ragged.batch + most - 1) / most;
  }

  // Offsets into q and out stay those of the whole batch.
  void run_part(const FlashAttentionArgs& args, const KvLayerView& keys, const KvLayerView& values,
                const Context& context) const {
    const PrefillWorkspace space(problem_, plan_, context.workspace);
    const auto stream = static_cast<cudaStream_t>(context.stream);
    PrefillParams params = make_params(args, keys, values, plan_);
    params.mask = visible_range(problem_.mask);
    params.intervals = token_intervals(args.mask);
    params.next_tile = space.next_tile;
    params.tail = space.tail;
    check(cudaMemsetAsync(params.next_tile, 0, space.zero_bytes, stream), "cudaMemsetAsync");
    const PrefillLaunch where{.blocks = blocks_at_once(plan_, context, args.q.device),
                              .stream = stream};
    switch (plan_.path) {
      case PrefillPath::direct:
      case PrefillPath::transposing:
        return plan_.variant->launch(params, make_keys(args, keys, values, plan_), where);
      case PrefillPath::dequantized:
        return launch_dequantized(args, keys, values, plan_, space, params, where);
      case PrefillPath::dequantizing:
        return plan_.variant->launch_dequantizing(
            params, dequantized_keys(args, keys, values, problem_, plan_, space), where);
      case PrefillPath::fp8:
        return launch_fp8_path(args, keys, values, plan_, transposed_blocks(problem_, plan_), space,
                               params, where);
    }
  }

  FlashAttentionProblem problem_;  // of one launch
  PrefillPlan plan_;
  std::int64_t parts_;  // of the batch, one launch after another
};

}  // namespace

std::string refuse_tiles(const FlashAttentionProblem& problem) {
  const std::string reason = refuse_unless_sm90(problem.device);
  return reason.empty() ? refuse_prefill(problem) : reason;
}

KernelPtr<FlashAttentionArgs> prepare_tiles(const FlashAttentionProblem& problem) {
  return std::make_unique<const PrefillKernel>(problem);
}

}  // namespace quire::cuda::sm90::flash_attention
