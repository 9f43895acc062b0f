// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_decode/launch.h"

#include <bit>
#include <numbers>
#include <numeric>

#include "cuda/common/mla/finish_rows.h"
#include "cuda/common/mla/head_product.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/sm90/mla_decode/plan_decode.h"
#include "cuda/sm90/mla_decode/variants.h"
#include "quire/tile_builders.h"

namespace quire::cuda::sm90::mla_decode {

namespace {

// What stands around the attention of a call that comes with weights: new rows finished, queries
// absorbed and rotated, values projected.

struct ProjectionScratch {
  float* rows = nullptr;        // [tokens, latent + rope], where new rows are to be finished
  std::byte* q = nullptr;       // bf16 [tokens, heads, latent + rope], absorbed
  std::byte* latent = nullptr;  // bf16 [tokens, heads, latent], attended
};

PlainRows columns_of(const TensorView& tensor, std::int64_t width) {
  PlainRows rows = plain_rows(tensor);
  rows.width = static_cast<std::int32_t>(width);
  return rows;
}

ProjectionScratch carve_projections(Carver& carver, const MlaDecodeProblem& problem) {
  const std::int64_t width = problem.latent_dim + problem.rope_dim;
  const std::int64_t rows = problem.nope_dim > 0 ? problem.ragged.tokens * problem.heads : 0;
  ProjectionScratch scratch;
  scratch.rows = carver.take<float>(problem.finishes_rows ? problem.ragged.tokens * width : 0);
  scratch.q = carver.take<std::byte>(bytes_for(DType::bf16, rows * width));
  scratch.latent = carver.take<std::byte>(bytes_for(DType::bf16, rows * problem.latent_dim));
  return scratch;
}

// The call that the attention sees: q absorbed, out of latents; `args` itself where it is one.
MlaDecodeArgs absorb_queries(const MlaDecodeArgs& args, const ProjectionScratch& scratch,
                             const Context& context) {
  finish_latent_rows(new_latent_rows(args), scratch.rows, context);
  if (!args.w_uk.has_value()) return args;
  const std::int64_t tokens = args.q.shape[0];
  const std::int64_t heads = args.q.shape[1];
  MlaDecodeArgs absorbed = args;
  absorbed.q = TensorView::contiguous(scratch.q, DType::bf16,
                                      {tokens, heads, args.cache.head_dim()}, args.q.device);
  absorbed.out = TensorView::contiguous(scratch.latent, DType::bf16,
                                        {tokens, heads, args.w_uk->shape[1]}, args.q.device);
  HeadProductParams matmul = decode_product(args, columns_of(args.q, args.w_uk->shape[2]),
                                            *args.w_uk, args.w_uk_scale, absorbed.q);
  matmul.rope = rotated_queries(args, absorbed.q.shape[2] - args.w_uk->shape[1], absorbed.q);
  launch_head_matmul(matmul, static_cast<cudaStream_t>(context.stream));
  return absorbed;
}

// What it attended to, times w_uv.
void project_values(const MlaDecodeArgs& args, const MlaDecodeArgs& absorbed,
                    const Context& context) {
  if (!args.w_uv.has_value()) return;
  launch_head_matmul(
      decode_product(args, plain_rows(absorbed.out), *args.w_uv, args.w_uv_scale, args.out),
      static_cast<cudaStream_t>(context.stream));
}

// The first `bytes` bytes of the rows.
PageMatrix leading_bytes(const PagedOperand& kv, int bytes) {
  return {.dtype = DType::u8,
          .num_pages = kv.pages.num_pages(),
          .page_size = kv.pages.page_size(),
          .row_width = bytes,
          .page_stride_bytes = kv.page_stride_bytes,
          .row_stride_bytes = kv.token_stride_bytes};
}

// (byte of the swizzle column, row of the page, swizzle column, page); a swizzle column has 64 or 128 bytes, and one
// that the row does not fill is left out.
TensorMap swizzle_column_map(const LatentPages& pages, int swizzle_column_bytes, int rows,
                             int swizzle_columns) {
  const int whole_columns = pages.kv.row_bytes / swizzle_column_bytes;
  const FoldedTileRequest request{
      .swizzle = swizzle_column_bytes == 128 ? Swizzle::b128 : Swizzle::b64,
      .box_rows = rows,
      .fold_chunks = swizzle_columns,
      .heads = HeadAxis::absent,
      .l2_promotion = L2Promotion::b128};
  const PageMatrix matrix = leading_bytes(pages.kv, whole_columns * swizzle_column_bytes);
  return encode_tensor_map(make_folded_tile(matrix, request),
                           const_cast<std::byte*>(pages.kv.keys));
}

constexpr int kRowSwizzleColumn = 128;  // bytes: 64 columns of bf16

}  // namespace

void set_swizzle_column_maps(MlaDecodeParams& params) {
  constexpr int kRows = SwapAbConfig::kUnitKeys;
  params.latents = swizzle_column_map(params.pages, kRowSwizzleColumn, kRows,
                                      params.pages.kv.row_bytes / kRowSwizzleColumn);
  if (params.format.has_fp8_rope)
    params.tails = swizzle_column_map(params.pages, kRowSwizzleColumn / 2, kRows, 1);
}

// (8 bytes, row of the page, page). Bytes of the box behind a row's end are zeros: they space rows out.
void set_unit_maps(MlaDecodeParams& params) {
  constexpr int kElement = 8;
  const PagedOperand& kv = params.pages.kv;
  const TileRequest request{.swizzle = Swizzle::none,
                            .box_columns = SwapAbConfig::kFp8Pitch / kElement,
                            .box_rows = SwapAbConfig::kUnitKeys,
                            .heads = HeadAxis::absent,
                            .l2_promotion = L2Promotion::b128};
  const PageMatrix matrix =
      columns_as(leading_bytes(kv, kv.row_bytes), DType::i64, 0, kv.row_bytes / kElement);
  params.latents = encode_tensor_map(make_tile(matrix, request), const_cast<std::byte*>(kv.keys));
}

namespace {

void set_boxes(LatentPages& pages) {
  pages.box_rows = std::gcd(pages.kv.pages.page_size(), LatentConfig::kKeys);
  pages.box_bits = std::countr_zero(static_cast<unsigned>(pages.box_rows));
}

}  // namespace

void set_row_maps(MlaDecodeParams& params) {
  set_boxes(params.pages);
  params.latents = swizzle_column_map(params.pages, kRowSwizzleColumn, params.pages.box_rows, 2);
  params.tails = swizzle_column_map(params.pages, kRowSwizzleColumn, params.pages.box_rows, 1);
}

void set_code_maps(MlaDecodeParams& params) {
  set_boxes(params.pages);
  const LatentPages& pages = params.pages;
  const LatentRowFormat& format = params.format;
  auto* rows = const_cast<std::byte*>(pages.kv.keys);
  constexpr int kLatents = LatentConfig::kLatent;  // bytes
  const auto swizzled = [&](const std::byte* base, int bytes, int columns, Swizzle swizzle) {
    const FoldedTileRequest request{.swizzle = swizzle,
                                    .box_rows = pages.box_rows,
                                    .fold_chunks = columns,
                                    .heads = HeadAxis::absent,
                                    .l2_promotion = L2Promotion::b128};
    return encode_tensor_map(make_folded_tile(leading_bytes(pages.kv, bytes), request),
                             const_cast<std::byte*>(base));
  };
  const bool is_tile = pages.box_rows == LatentConfig::kKeys;
  params.latents =
      swizzled(rows, kLatents, is_tile ? kLatents / kRowSwizzleColumn : 1, Swizzle::b128);
  params.tails =
      format.has_fp8_rope
          ? swizzled(rows + format.rope_offset_bytes, LatentConfig::kRope, 1, Swizzle::b64)
          : swizzled(rows + format.rope_offset_bytes, kRowSwizzleColumn, 1, Swizzle::b128);
  if (format.row_scales_offset_bytes < 0) return;
  constexpr int kScales = 4;
  const TileRequest request{.swizzle = Swizzle::none,
                            .box_columns = kScales,
                            .box_rows = pages.box_rows,
                            .heads = HeadAxis::absent,
                            .l2_promotion = L2Promotion::b128};
  const PageMatrix matrix =
      columns_as(leading_bytes(pages.kv, kScales * 4), DType::f32, 0, kScales);
  params.scales =
      encode_tensor_map(make_tile(matrix, request), rows + format.row_scales_offset_bytes);
}

namespace {

LatentSplits carve_splits(Carver& carver, const MlaDecodePlan& plan) {
  const int rows = plan.variant->rows;
  float* sums = carver.take<float>(plan.slots * rows * LatentConfig::kLatent);
  return {.sums = sums,
          .stats = carver.take<float2>(plan.slots * rows),
          .rows = rows,
          .split_counts = plan.variant->publishes_splits
                              ? carver.take<SplitCount>(plan.most_work_tiles)
                              : nullptr};
}

LatentParams make_attend(const MlaDecodeArgs& args, const VisibleRange& visible,
                         const LatentSplits& splits) {
  return {.queries = {.data = static_cast<const std::byte*>(args.q.data),
                      .token_stride_bytes = bytes_for(args.q.dtype, args.q.strides[0]),
                      .head_stride_bytes = bytes_for(args.q.dtype, args.q.strides[1])},
          .heads = static_cast<int>(args.q.shape[1]),
          .to_log2 = static_cast<float>(args.scale * std::numbers::log2e),
          .visible = visible,
          .outputs = attend_output(args.out, args.lse, args.sinks),
          .splits = splits};
}

LatentRowFormat make_format(const KvLayerView& rows) {
  const RowFormat& format = rows.row_format;
  if (format.is_uniform()) {
    return {.rope_offset_bytes = LatentConfig::kLatent, .has_fp8_rope = true};
  }
  LatentRowFormat made{.rope_offset_bytes = format.parts[1].offset_bytes};
  if (format.parts[0].scale_source == ScaleSource::in_row) {
    made.row_scales_offset_bytes = format.parts[0].scale_offset_bytes;
  } else {
    made.token_scales = reinterpret_cast<const float*>(rows.scales.data);
    made.scale_page_stride = rows.scales.page_stride;
    made.scale_token_stride = rows.scales.token_stride;
    made.scale_pages = PageTable::of_scales(rows);
  }
  return made;
}

// q absorbed and rotated, out of latent columns.
void attend_latents(const MlaDecodeArgs& args, const MlaDecodePlan& plan,
                    const VisibleRange& visible, const LatentSplits& splits, cudaStream_t stream) {
  const KvLayerView rows = args.cache.key(args.layer).with_keys(args.key_lengths);
  const LatentParams attend = make_attend(args, visible, splits);
  MlaDecodeParams params{.attend = attend,
                         .batch = {.row_offsets = args.row_offsets.as<const std::uint32_t>(),
                                   .cache_lengths = rows.cache_lengths,
                                   .key_lengths = rows.key_lengths,
                                   .size = static_cast<int>(rows.batch),
                                   .kv_heads = 1,
                                   .group = attend.heads,
                                   .tile_tokens = plan.tile_tokens,
                                   .visible = attend.visible},
                         .schedule = plan.schedule,
                         .pages = {.kv = PagedOperand::of(rows, nullptr)}};
  if (plan.variant->latents != DType::bf16) params.format = make_format(rows);
  plan.variant->set_maps(params);
  plan.variant->launch(params, stream);
  // Split counts are there after the kernel's end. Where the kernel that merges has room before, it finds out itself (merge.cu).
  if (plan.leaves_room) params.attend.splits.split_counts = nullptr;
  merge_mla_splits(params, plan.work_tiles, plan.schedule.blocks * plan.variant->cluster, stream);
}

std::string refuse(const MlaDecodeProblem& problem, DType latents) {
  std::string elsewhere = refuse_unless_sm90(problem.device);
  if (!elsewhere.empty()) return elsewhere;
  const DType dtype = problem.cache.row_format.parts[0].dtype;
  if (dtype != latents) return "latents of " + std::string(name(dtype));
  return refuse_mla_decode_problem(problem);
}

class LatentKernel final : public Kernel<MlaDecodeArgs> {
 public:
  explicit LatentKernel(const MlaDecodeProblem& problem)
      : problem_(problem), plan_(plan_mla_decode(problem, num_sms(problem.device.index))) {}

  std::int64_t workspace_bytes() const override {
    Carver counter;
    static_cast<void>(carve_splits(counter, plan_));
    static_cast<void>(carve_projections(counter, problem_));
    return counter.bytes();
  }

  Choices choices() const override {
    return {{"kernel", std::string(plan_.variant->name)},
            {"tile_tokens", std::to_string(plan_.tile_tokens)}};
  }

  void run(const MlaDecodeArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
    const DeviceScope scope(args.q.device);
    Carver carver(context.workspace);
    const LatentSplits splits = carve_splits(carver, plan_);
    const ProjectionScratch scratch = carve_projections(carver, problem_);
    const MlaDecodeArgs absorbed = absorb_queries(args, scratch, context);
    attend_latents(absorbed, plan_, visible_range(problem_.mask), splits,
                   static_cast<cudaStream_t>(context.stream));
    project_values(args, absorbed, context);
  }

 private:
  MlaDecodeProblem problem_;
  MlaDecodePlan plan_;
};

}  // namespace

std::string refuse_mla_decode_bf16(const MlaDecodeProblem& problem) {
  return refuse(problem, DType::bf16);
}

std::string refuse_mla_decode_fp8(const MlaDecodeProblem& problem) {
  return refuse(problem, DType::fp8_e4m3);
}

KernelPtr<MlaDecodeArgs> prepare_mla_decode(const MlaDecodeProblem& problem) {
  return std::make_unique<const LatentKernel>(problem);
}

}  // namespace quire::cuda::sm90::mla_decode
