// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/flash_attention/prefill/launch.h"

#include "cuda/hopper/flash_attention/prefill/plan_prefill.h"
#include "cuda/runtime/device_facts.h"
#include "cuda/runtime/device_scope.h"
#include "cuda/runtime/status.h"

namespace quire::cuda::hopper {
namespace {

// K and V of the heads that are worked on together: half of an H200's L2.
constexpr std::int64_t kSectionBytes = 24 << 20;

TileDescriptor query_tile(const TensorView& q, const PrefillPlan& plan) {
  TileDescriptor tile;
  tile.dtype = q.dtype;
  tile.rank = 3;
  tile.dims = {q.shape[2], q.shape[1], q.shape[0]};
  tile.strides_bytes = {bytes_for(q.dtype, q.strides[1]), bytes_for(q.dtype, q.strides[0])};
  const int heads = 1 << plan.tile_heads_log2;
  tile.box = {PrefillConfig::kSlabColumns, heads, plan.variant->config.rows() / heads};
  tile.swizzle = Swizzle::b128;
  tile.l2_promotion = L2Promotion::b256;
  return tile;
}

// (column, row of the page, KV head, page)
TensorMap page_map(const KvLayerView& view, std::int64_t columns, const PrefillPlan& plan) {
  const PrefillConfig& config = plan.variant->config;
  TileDescriptor tile;
  tile.dtype = config.cache_dtype;
  tile.rank = 4;
  tile.dims = {columns, view.page_size, view.num_heads, view.num_pages};
  tile.strides_bytes = {view.token_stride_bytes, view.head_stride_bytes, view.page_stride_bytes};
  tile.box = {config.copied_columns(), plan.box_rows, 1, 1};
  tile.swizzle = Swizzle::b128;
  tile.l2_promotion = L2Promotion::b256;
  return encode_tensor_map(tile, view.data);
}

PrefillOutputs make_outputs(const FlashAttentionArgs& args) {
  PrefillOutputs outputs{.out = static_cast<std::byte*>(args.out.data),
                         .token_stride_bytes = bytes_for(args.out.dtype, args.out.strides[0]),
                         .head_stride_bytes = bytes_for(args.out.dtype, args.out.strides[1])};
  if (args.lse.has_value()) {
    outputs.lse = args.lse->as<float>();
    outputs.lse_token_stride = args.lse->strides[0];
    outputs.lse_head_stride = args.lse->strides[1];
  }
  return outputs;
}

PrefillParams make_params(const FlashAttentionArgs& args, const PrefillPlan& plan) {
  const KvLayerView keys = args.cache.key(args.layer);
  const auto heads = static_cast<int>(args.q.shape[1]);
  const DType stored = plan.variant->config.cache_dtype;
  const std::int64_t key_bytes = 2 * bytes_for(stored, args.q.shape[2]);  // its V row too
  return {.q = encode_tensor_map(query_tile(args.q, plan), args.q.data),
          .row_offsets = args.row_offsets.as<const std::uint32_t>(),
          .cache_lengths = keys.cache_lengths,
          .batch = static_cast<int>(keys.batch),
          .tile_heads_log2 = plan.tile_heads_log2,
          .head_tiles = heads >> plan.tile_heads_log2,
          .kv_head_tiles = (heads / keys.num_heads) >> plan.tile_heads_log2,
          .section_keys = static_cast<int>(kSectionBytes / key_bytes),
          .mask = visible_range(args.mask).value(),
          .scores = score_rules(args),
          .outputs = make_outputs(args)};
}

PagedKeys make_keys(const FlashAttentionArgs& args, const PrefillPlan& plan) {
  const KvLayerView keys = args.cache.key(args.layer);
  const KvLayerView values = args.cache.value(args.layer);
  return {.keys = page_map(keys, args.q.shape[2], plan),
          .values = page_map(values, args.out.shape[2], plan),
          .table = keys.page_table,
          .table_stride = keys.page_table_stride,
          .max_pages = static_cast<int>(keys.max_pages),
          .page_size = keys.page_size,
          .num_pages = static_cast<int>(keys.num_pages),
          .box_rows = plan.box_rows};
}

}  // namespace

std::string refuse_tiles(const FlashAttentionProblem& problem) {
  const std::string reason = refuse_hopper(problem.device);
  return reason.empty() ? refuse_prefill(problem) : reason;
}

std::int64_t prefill_workspace_bytes(const FlashAttentionProblem&) {
  return sizeof(int);  // the next tile's number
}

std::vector<std::pair<std::string, std::string>> prefill_choices(
    const FlashAttentionProblem& problem) {
  const bool is_modified = problem.has_softcap || problem.has_alibi;
  const PrefillPlan plan = plan_prefill(problem, is_modified ? Scores::modified : Scores::scaled,
                                        num_sms(problem.device.index));
  return {{"kernel", std::string(plan.variant->name)}, {"blocks", std::to_string(plan.blocks)}};
}

void flash_attention_prefill(const FlashAttentionArgs& args, const Context& context) {
  if (args.q.shape[0] == 0) return;
  const FlashAttentionProblem problem = validate(args);
  const bool is_modified =
      problem.has_softcap || problem.has_alibi || args.scale.value_or(1.0) <= 0;
  const PrefillPlan plan = plan_prefill(problem, is_modified ? Scores::modified : Scores::scaled,
                                        num_sms(problem.device.index));
  const DeviceScope scope(args.q.device);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  PrefillParams params = make_params(args, plan);
  params.next_tile = static_cast<int*>(context.workspace);
  check(cudaMemsetAsync(params.next_tile, 0, sizeof(int), stream), "cudaMemsetAsync");
  plan.variant->launch(params, make_keys(args, plan), {.blocks = plan.blocks, .stream = stream});
}

}  // namespace quire::cuda::hopper
