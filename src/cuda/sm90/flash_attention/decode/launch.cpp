// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/flash_attention/launch.h"

#include <atomic>
#include <random>

#include "cuda/common/paging/attention_views.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/sm90/flash_attention/decode/key_blocks.h"
#include "cuda/sm90/flash_attention/decode/params.h"
#include "cuda/sm90/flash_attention/decode/plan_decode.h"

namespace quire::cuda::sm90::flash_attention {
namespace {

// A number that no launch before had, nor anything else that stands in a workspace.
std::uint64_t next_mark() {
  static const std::uint64_t seed =
      std::uint64_t{std::random_device{}()} << 32 | std::random_device{}();
  static std::atomic<std::uint64_t> launches{0};
  // splitmix64: distinct numbers stay distinct.
  std::uint64_t mixed = seed + 0x9e3779b97f4a7c15U * (launches.fetch_add(1) + 1);
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebU;
  return mixed ^ mixed >> 31;
}

DecodeSplits carve_splits(Carver& carver, const DecodePlan& plan) {
  const DecodeConfig& config = plan.variant->config;
  const std::int64_t rows = plan.slots * config.rows;
  float* sums = carver.take<float>(rows * config.dims());
  float2* stats = carver.take<float2>(rows);
  if (!plan.joins) return {.sums = sums, .stats = stats};
  return {.sums = sums,
          .stats = stats,
          .marks = carver.take<std::uint64_t>(plan.slots),
          .mark = next_mark()};
}

DecodeBatch make_batch(const FlashAttentionArgs& args, const KvLayerView& keys,
                       const DecodePlan& plan, const VisibleRange& visible) {
  return {.row_offsets = args.row_offsets.as<const std::uint32_t>(),
          .cache_lengths = keys.cache_lengths,
          .key_lengths = keys.key_lengths,
          .size = static_cast<int>(keys.batch),
          .kv_heads = keys.num_heads >> plan.work_lists.bits,
          .group = static_cast<int>(args.q.shape[1] / keys.num_heads),
          .tile_tokens = plan.tile_tokens,
          .visible = visible};
}

// The same of pairs of a token and a KV head, which see all keys of their lists.
DecodeBatch make_listed_batch(const FlashAttentionArgs& args, const KvLayerView& keys,
                              const ListedKeys& listed, const DecodePlan& plan) {
  DecodeBatch batch = make_batch(args, keys, plan, {});
  batch.row_offsets = listed.row_offsets;
  batch.kv_heads = 1;
  return batch;
}

DecodeOutputs make_outputs(const FlashAttentionArgs& args) {
  const TensorView& out = args.out;
  const std::int64_t vector_bytes = bytes_for(out.dtype, 4);
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(out.data));
  DecodeOutputs outputs{.out = static_cast<std::byte*>(out.data),
                        .dtype = out.dtype,
                        .token_stride = out.strides[0],
                        .head_stride = out.strides[1],
                        .value_dim = static_cast<int>(out.shape[2]),
                        .has_vectors = address % vector_bytes == 0 && out.strides[0] % 4 == 0 &&
                                       out.strides[1] % 4 == 0};
  if (args.lse.has_value()) {
    outputs.lse = args.lse->as<float>();
    outputs.lse_token_stride = args.lse->strides[0];
    outputs.lse_head_stride = args.lse->strides[1];
  }
  return outputs;
}

DecodeQueries make_queries(const TensorView& q, const DecodeBatch& batch) {
  return {.data = static_cast<const std::byte*>(q.data),
          .dtype = q.dtype,
          .token_stride_bytes = bytes_for(q.dtype, q.strides[0]),
          .head_stride_bytes = bytes_for(q.dtype, q.strides[1]),
          .row_bytes = static_cast<int>(bytes_for(q.dtype, q.shape[2])),
          .group = Divisor(static_cast<std::uint32_t>(batch.group))};
}

class DecodeKernel final : public Kernel<FlashAttentionArgs> {
 public:
  explicit DecodeKernel(const FlashAttentionProblem& problem)
      : plan_(plan_decode(listed_problem(problem), num_sms(problem.device.index))),
        problem_(problem) {
    Carver counter;
    carve_splits(counter, plan_);
    if (has_lists()) ListedKeys::carve(counter, problem);
    workspace_bytes_ = counter.bytes();
  }

  std::int64_t workspace_bytes() const override { return workspace_bytes_; }

  Choices choices() const override {
    Choices choices{{"kernel", std::string(plan_.variant->name)},
                    {"tile_tokens", std::to_string(plan_.tile_tokens)}};
    if (has_lists()) choices.push_back({"keys", "lists of blocks"});
    return choices;
  }

  void run(const FlashAttentionArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0) return;
    auto [keys, values] = attention_views(args);
    const DeviceScope scope(args.q.device);
    const auto stream = static_cast<cudaStream_t>(context.stream);
    Carver carver(context.workspace);
    DecodeParams params{.schedule = plan_.schedule,
                        .work_lists = plan_.work_lists,
                        .scores = score_rules(args),
                        .scales = head_scales(keys, values),
                        .outputs = make_outputs(args),
                        .splits = carve_splits(carver, plan_)};
    if (has_lists()) {
      const ListedKeys listed = ListedKeys::carve(carver, problem_);
      launch_list_pages(args, keys, listed, stream);
      keys = listed.in(keys);
      params.batch = make_listed_batch(args, keys, listed, plan_);
      params.listed = {.kv_heads = static_cast<int>(keys.num_heads)};
    } else {
      const TreeMask mask = tree_mask(args.mask, problem_.mask);
      params.batch = make_batch(args, keys, plan_, mask.visible);
      params.tree = mask.tree;
      params.intervals = mask.intervals;
    }
    params.queries = make_queries(args.q, params.batch);
    params.kv = PagedOperand::of(keys, values.data);
    plan_.variant->launch(params, stream);
    if (plan_.joins) return;
    const DecodeConfig& config = plan_.variant->config;
    merge_splits(params, {.rows = config.rows, .dims = config.dims()}, stream);
  }

 private:
  bool has_lists() const { return problem_.max_key_blocks > 0; }

  DecodePlan plan_;
  FlashAttentionProblem problem_;
  std::int64_t workspace_bytes_;
};

}  // namespace

std::string refuse_decode(const FlashAttentionProblem& problem) {
  const std::string reason = refuse_unless_sm90(problem.device);
  return reason.empty() ? refuse_decode_problem(problem) : reason;
}

KernelPtr<FlashAttentionArgs> prepare_decode(const FlashAttentionProblem& problem) {
  return std::make_unique<const DecodeKernel>(problem);
}

}  // namespace quire::cuda::sm90::flash_attention
