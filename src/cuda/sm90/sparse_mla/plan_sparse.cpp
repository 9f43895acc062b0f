// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/sparse_mla/plan_sparse.h"

#include <algorithm>
#include <optional>

#include "cuda/common/paging/most_keys.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/softmax/score.h"

namespace quire::cuda::sm90::sparse_mla {
namespace {

// Costs in µs: what a work tile takes before its first tile and after its last one, what each of its keys
// takes, and what merging takes, for each split and at all.
constexpr double kWorkTileCost = 6.0;
constexpr double kKeyCost = 0.03;
constexpr double kMergeCost = 4.0;
constexpr double kSplitCost = 0.2;

// Up to here kernels of their own multiply e4m3 rows as they are.
constexpr std::int64_t kFewHeads = 32;

bool is_scaled_whole(const RowPart& part) {
  return part.scale_source == ScaleSource::plane && part.scale_dtype == DType::f32 &&
         part.granularity >= SparseConfig::kLatent + SparseConfig::kRope;
}

// Of whole rows: bf16, or those of RowFormat::mla_fp8_e8m0().
std::optional<RowKind> kind_of_whole(const RowFormat& format) {
  constexpr std::int32_t kGranule = 64;
  constexpr std::int32_t kCoded = num_columns(RowShape::whole) - kGranule;
  const RowPart& coded = format.parts[0];
  if (format.is_uniform()) {
    const bool is_bf16 = coded.dtype == DType::bf16 && coded.scale_source == ScaleSource::none;
    return is_bf16 ? std::optional(RowKind::bf16) : std::nullopt;
  }
  const RowPart& tail = format.parts[1];
  const bool has_powers = coded.scale_source == ScaleSource::plane &&
                          coded.scale_dtype == DType::e8m0 && coded.granularity == kGranule;
  const bool takes = format.num_parts == 2 && coded.dtype == DType::fp8_e4m3 &&
                     coded.width == kCoded && has_powers && tail.dtype == DType::bf16 &&
                     tail.scale_source == ScaleSource::none && tail.offset_bytes == kCoded;
  return takes ? std::optional(RowKind::fp8) : std::nullopt;
}

// How the kernel reads rows of a format; nullopt: not at all.
std::optional<RowKind> kind_of(const RowFormat& format, RowShape shape) {
  const RowPart& latent = format.parts[0];
  const bool is_plain = latent.scale_source == ScaleSource::none;
  if (format.row_bytes % 16 != 0 || latent.offset_bytes != 0) return std::nullopt;
  if (shape == RowShape::whole) return kind_of_whole(format);
  if (format.is_uniform()) {
    if (latent.dtype == DType::bf16 && is_plain) return RowKind::bf16;
    const bool takes = is_plain || is_scaled_whole(latent);
    return latent.dtype == DType::fp8_e4m3 && takes ? std::optional(RowKind::fp8) : std::nullopt;
  }
  const RowPart& rope = format.parts[1];
  if (format.num_parts != 2 || latent.dtype != DType::fp8_e4m3 || rope.dtype != DType::bf16 ||
      latent.width != SparseConfig::kLatent || rope.offset_bytes % 16 != 0) {
    return std::nullopt;
  }
  const bool is_rope_plain = rope.scale_source == ScaleSource::none;
  const bool is_blocked = latent.scale_source == ScaleSource::in_row && latent.granularity == 128 &&
                          latent.scale_dtype == DType::f32 && latent.scale_offset_bytes % 16 == 0;
  const bool takes =
      is_rope_plain ? is_plain || is_blocked : is_scaled_whole(latent) && is_scaled_whole(rope);
  return takes ? std::optional(RowKind::fp8) : std::nullopt;
}

RowShape shape_of(const SparseMlaProblem& problem) {
  return problem.rope_dim == 0 ? RowShape::whole : RowShape::latent_rope;
}

// Costs in ns: what a key of a token and head takes longer to read as e4m3 than as bf16 (H200: 1.31
// against 0.91 µs for 2048 keys of 128 heads), what decoding takes at all, and for each row there
// may be.
constexpr double kCodedKeyCost = 0.0015;
constexpr double kDecodeCost = 5000.0;
constexpr double kDecodedRowCost = 1.0;
constexpr std::int64_t kMostDecodedBytes = std::int64_t{256} << 20;

struct DecodedStreams {
  DecodedShape main{};
  DecodedShape extra{};

  double rows() const { return static_cast<double>(main.rows() + extra.rows()); }
  std::int64_t bytes() const { return main.bytes() + extra.bytes(); }
};

// All rows of both streams, in pages of their own.
DecodedStreams all_rows(const SparseMlaProblem& problem) {
  const RaggedSize& ragged = problem.ragged;
  const auto pages_for = [&](std::int64_t rows, std::int64_t page_size) {
    return DecodedShape{.batch = ragged.batch,
                        .columns = ceil_div(rows, page_size),
                        .page_size = static_cast<std::int32_t>(page_size),
                        .width = num_columns(shape_of(problem))};
  };
  DecodedStreams all{.main = pages_for(most_keys(ragged, problem.cache), problem.cache.page_size)};
  if (problem.extra_k > 0) {
    all.extra = pages_for(problem.extra_max_rows, problem.extra_page_size);
    all.extra.tokens_per_row = problem.extra_tokens_per_row;
  }
  return all;
}

// Prompts read every row many times: it pays to decode all of them once. Not with batch_invariant,
// since the choice depends on the size of the batch and the two ways differ in rounding.
DecodedStreams decoded_streams(const SparseMlaProblem& problem) {
  const std::int64_t keys = most_keys(problem.ragged, problem.cache);
  const bool may_decode = kind_of(problem.cache.row_format, shape_of(problem)) == RowKind::fp8 &&
                          !problem.batch_invariant && problem.heads > kFewHeads;
  // Pages without room, as a plan may be asked for.
  const bool has_room = keys > 0 && (problem.extra_k == 0 || problem.extra_max_rows > 0);
  if (!may_decode || !has_room) return {};
  const DecodedStreams all = all_rows(problem);
  const std::int64_t taken =
      std::min(problem.top_k, keys) + std::min(problem.extra_k, problem.extra_max_rows);
  const double saved = kCodedKeyCost * static_cast<double>(problem.ragged.tokens) *
                       static_cast<double>(problem.heads) * static_cast<double>(taken);
  const double cost = kDecodeCost + kDecodedRowCost * all.rows();
  return all.bytes() <= kMostDecodedBytes && saved > 2.0 * cost ? all : DecodedStreams{};
}

const SparseVariant* find_variant(const SparseMlaProblem& problem, std::optional<RowKind> kind) {
  const SparseVariant* chosen = nullptr;  // where none has them all
  for (const SparseVariant& variant : kSparseVariants) {
    if (!kind.has_value() || variant.rows != *kind || variant.shape != shape_of(problem)) continue;
    if (variant.heads >= problem.heads) return &variant;
    if (variant.heads == SparseConfig::kHeads) chosen = &variant;
  }
  return chosen;
}

// Few work tiles, or the few that are left when all multiprocessors have had as many, leave some of them idle:
// their tiles are cut into splits, as many as pay.
std::int64_t choose_splits(std::int64_t work_tiles, std::int64_t tiles, int keys, int num_sms) {
  std::int64_t best = 1;
  double best_cost = 0.0;
  for (std::int64_t splits = 1; splits <= std::min<std::int64_t>(tiles, kMostSparseSplits);
       ++splits) {
    if (splits > 1 && work_tiles * splits > num_sms) break;
    const double waves = static_cast<double>(ceil_div(work_tiles * splits, num_sms));
    const double merge = splits > 1 ? kMergeCost + kSplitCost * static_cast<double>(splits) : 0.0;
    const double keys_cost = kKeyCost * static_cast<double>(keys * ceil_div(tiles, splits));
    const double cost = waves * (keys_cost + kWorkTileCost) + merge;
    if (splits > 1 && cost >= best_cost) continue;
    best = splits;
    best_cost = cost;
  }
  return best;
}

}  // namespace

std::string refuse_sparse_problem(const SparseMlaProblem& problem) {
  const bool has_rope = problem.rope_dim == SparseConfig::kRope;
  if (problem.latent_dim != SparseConfig::kLatent || (!has_rope && problem.rope_dim != 0)) {
    return "rows are not 512 + 64 or 512 wide";
  }
  if (problem.q_dtype != DType::bf16) return "q is not bf16";
  const RowShape shape = shape_of(problem);
  const std::optional<RowKind> kind = kind_of(problem.cache.row_format, shape);
  if (find_variant(problem, kind) == nullptr) {
    return "no kernel reads rows of " + problem.cache.row_format.describe();
  }
  if (problem.extra_k > 0 && kind_of(problem.extra_format, shape) != kind) {
    return "the extra cache's rows are of another kind: " + problem.extra_format.describe();
  }
  if (problem.alignment % 16 != 0) return "rows are not aligned to 16 bytes";
  return refuse_scale(problem.scale);
}

SparsePlan plan_sparse(const SparseMlaProblem& problem, int num_sms) {
  const DecodedStreams decoded = decoded_streams(problem);
  const SparseVariant* variant = find_variant(
      problem, decoded.main.pages() > 0 ? RowKind::bf16
                                        : kind_of(problem.cache.row_format, shape_of(problem)));
  const int keys = variant->keys;
  const std::int64_t first_tiles = ceil_div(problem.top_k, keys);
  const std::int64_t tiles =
      std::max<std::int64_t>(first_tiles + ceil_div(problem.extra_k, keys), 1);
  const int blocks = variant->blocks;  // of a cluster, each with heads of its own
  const std::int64_t head_tiles =
      ceil_div(problem.heads, std::int64_t{SparseConfig::kHeads} * blocks) * blocks;
  const std::int64_t units = problem.ragged.tokens * head_tiles;
  const std::int64_t side_by_side = num_sms / blocks * blocks;
  const std::int64_t rest = units % side_by_side;
  // How many units are left over depends on the other tokens of the batch.
  const std::int64_t wanted =
      problem.batch_invariant ? 1 : choose_splits(rest, tiles, keys, num_sms);
  const std::int64_t split_tiles = ceil_div(tiles, wanted);
  const std::int64_t splits = ceil_div(tiles, split_tiles);
  const std::int64_t cut = splits == 1 ? 0 : rest;
  return {.variant = variant,
          .work = {.tokens = static_cast<int>(problem.ragged.tokens),
                   .heads = static_cast<int>(problem.heads),
                   .head_tiles = static_cast<int>(head_tiles),
                   .tiles = static_cast<int>(tiles),
                   .whole = static_cast<int>(units - cut),
                   .splits = static_cast<int>(splits),
                   .split_tiles = static_cast<int>(split_tiles),
                   .first_tiles = static_cast<int>(first_tiles),
                   .alternates = !problem.batch_invariant},
          .blocks = static_cast<int>(std::min(units - cut + cut * splits, side_by_side)),
          .decoded = {decoded.main, decoded.extra}};
}

}  // namespace quire::cuda::sm90::sparse_mla
