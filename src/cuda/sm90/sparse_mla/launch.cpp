// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/sparse_mla/launch.h"

#include <algorithm>
#include <numbers>

#include "cuda/common/runtime/alignment.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/sm90/sparse_mla/params.h"
#include "cuda/sm90/sparse_mla/plan_sparse.h"
#include "quire/tile_builders.h"

namespace quire::cuda::sm90::sparse_mla {
namespace {

SparseSplits carve_splits(Carver& carver, const SparsePlan& plan) {
  if (plan.work.cut() == 0) return {};
  const std::int64_t rows = std::int64_t{plan.work.cut()} * plan.work.splits * SparseConfig::kHeads;
  float* sums = carver.take<float>(rows * SparseConfig::kLatent);
  return {.sums = sums, .stats = carver.take<float2>(rows)};
}

// (column, head, token); heads past the last one are zeros.
TensorMap query_map(const TensorView& q) {
  const TileRequest request{.swizzle = Swizzle::b128,
                            .box_columns = SparseConfig::kSwizzleColumnWidth,
                            .box_rows = 1,
                            .box_heads = SparseConfig::kHeads,
                            .l2_promotion = L2Promotion::b256};
  return encode_tensor_map(make_tile(row_matrix_of(q), request), q.data);
}

// Whether all scales of a row are one load.
bool are_words(const ScaleLayerView& scales) {
  constexpr std::int64_t kWord = 8;
  return scales.dtype == DType::e8m0 && scales.slot_stride == 1 &&
         are_aligned(kWord, scales.data, scales.page_stride, scales.token_stride);
}

GatherStream gather_stream(const KvLayerView& view, const TensorView& indices,
                           const std::optional<TensorView>& lengths) {
  const RowFormat& format = view.row_format;
  const bool is_uniform = format.is_uniform();
  return {.rows = view,
          .pages = PageTable::of_rows(view),
          .scale_pages = PageTable::of_scales(view),
          .indices = indices.as<const std::int32_t>(),
          .indices_stride = indices.strides[0],
          .slots = static_cast<int>(indices.shape[1]),
          .lengths = lengths.has_value() ? lengths->as<const std::int32_t>() : nullptr,
          .rope_offset_bytes = is_uniform ? SparseConfig::kLatent : format.parts[1].offset_bytes,
          .rope_is_fp8 = is_uniform,
          .rope_is_scaled = !is_uniform && format.parts[1].scale_source != ScaleSource::none,
          .powers_are_words = are_words(view.scales)};
}

class SparseKernel final : public Kernel<SparseMlaArgs> {
 public:
  explicit SparseKernel(const SparseMlaProblem& problem)
      : plan_(plan_sparse(problem, num_sms(problem.device.index))) {}

  std::int64_t workspace_bytes() const override {
    Carver counter;
    carve_splits(counter, plan_);
    for (const DecodedShape& shape : plan_.decoded) DecodedPages::carve(counter, shape);
    return counter.bytes();
  }

  Choices choices() const override {
    return {{"kernel", std::string(plan_.variant->name)},
            {"blocks", std::to_string(plan_.blocks)},
            {"cut", std::to_string(plan_.work.cut())},
            {"splits", std::to_string(plan_.work.splits)},
            {"decoded_pages", std::to_string(plan_.decoded_pages())}};
  }

  void run(const SparseMlaArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
    const DeviceScope scope(args.q.device);
    const auto stream = static_cast<cudaStream_t>(context.stream);
    Carver carver(context.workspace);
    SparseParams params{.q = query_map(args.q),
                        .q_rows = args.q.as<const std::byte>(),
                        .q_token_bytes = bytes_for(args.q.dtype, args.q.strides[0]),
                        .q_head_bytes = bytes_for(args.q.dtype, args.q.strides[1]),
                        .work = plan_.work,
                        .row_offsets = args.row_offsets.as<const std::uint32_t>(),
                        .streams = {},
                        .scale_log2 = static_cast<float>(args.scale * std::numbers::log2e),
                        .output = attend_output(args.out, args.lse, args.sinks),
                        .splits = carve_splits(carver, plan_)};
    const auto rows_of = [&](const KvLayerView& coded, const DecodedShape& shape) {
      if (!plan_.decodes()) return coded;
      const DecodedPages decoded = DecodedPages::carve(carver, shape);
      launch_decode_pages(coded, params.row_offsets, decoded, stream);
      return decoded.view_of(coded);
    };
    params.streams[0] = gather_stream(rows_of(args.cache.key(args.layer), plan_.decoded[0]),
                                      args.indices, args.topk_lengths);
    if (args.extra.has_value()) {
      params.streams[1] =
          gather_stream(rows_of(args.extra->cache.key(args.extra->layer), plan_.decoded[1]),
                        args.extra->indices, args.extra->lengths);
      params.streams[1].tokens_per_row = static_cast<std::uint32_t>(
          std::min<std::int64_t>(args.extra->tokens_per_row, 0xffffffff));
    }
    plan_.variant->launch(params, plan_.blocks, stream);
    merge_sparse_splits(params, stream);
  }

 private:
  SparsePlan plan_;
};

}  // namespace

std::string refuse_sparse(const SparseMlaProblem& problem) {
  const std::string reason = refuse_unless_sm90(problem.device);
  return reason.empty() ? refuse_sparse_problem(problem) : reason;
}

KernelPtr<SparseMlaArgs> prepare_sparse(const SparseMlaProblem& problem) {
  return std::make_unique<const SparseKernel>(problem);
}

}  // namespace quire::cuda::sm90::sparse_mla
