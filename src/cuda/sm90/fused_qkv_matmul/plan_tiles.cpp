// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/fused_qkv_matmul/plan_tiles.h"

#include <algorithm>

#include "cuda/common/mma/row_order.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/sm90/fused_qkv_matmul/outputs.h"

namespace quire::cuda::sm90::fused_qkv_matmul {
namespace {

TileGrid grid_of(const TileConfig& config, const TileShape& shape) {
  const std::int64_t rows =
      ceil_div(shape.tokens, std::int64_t{config.tokens()} * config.weight_sharers());
  const std::int64_t columns =
      ceil_div(shape.columns, std::int64_t{config.tile_n} * config.token_sharers());
  // Eight clusters high: what 132 multiprocessors read at a time is then nearly square.
  return {.rows = static_cast<int>(rows), .columns = static_cast<int>(columns), .band = 8};
}

// A tile has whole granules, or two blocks have them together.
bool holds_granules(const TileConfig& config, int granule) {
  if (granule == 0) return config.kv_rows == KvRows::numbers;
  return config.kv_rows == KvRows::codes &&
         (config.pairs_granules() ? 2 : 1) * config.tile_n % granule == 0;
}

bool takes(const TileConfig& config, const TileShape& shape) {
  // One warpgroup for many tokens would read the weights more than once.
  const bool is_exact = !config.has_scales() || config.promotes();
  return config.dtype == shape.dtype && config.scaling == shape.scaling &&
         holds_granules(config, shape.granule) && (is_exact || shape.allow_fast_accum) &&
         (config.consumers > 1 || shape.tokens <= config.kept_tokens);
}

// How a variant's tiles cover the problem.
struct Cover {
  TileGrid grid{};
  TailTiles tail{};
  double longest = 0;         // columns that the busiest cluster computes, as if of whole tiles
  std::int64_t computed = 0;  // columns of all clusters together

  bool ends_before(const Cover& other) const {
    return longest < other.longest || (longest == other.longest && computed < other.computed);
  }
};

// A column of a narrow tile costs more: more bytes for each product, and a tile's end is the same.
double tail_cost(const TileConfig& config) {
  return 2 * config.tail_n <= config.tile_n ? 1.1 : 1.07;
}

// The first `columns` columns of tiles are whole, and so are the others but for the last `rows` rows. The clusters
// that have no tile in the last round of whole ones have narrow ones meanwhile (narrow_tile).
Cover with_tail(const TileConfig& config, const TileShape& shape, const TileGrid& all, int columns,
                int rows, std::int64_t clusters) {
  const std::int64_t right = all.columns - columns;
  const std::int64_t whole = std::int64_t{all.rows} * columns + (all.rows - rows) * right;
  const std::int64_t rounds = ceil_div(whole, clusters);
  const std::int64_t tail_columns =
      ceil_div(shape.columns - std::int64_t{columns} * config.tile_n, config.tail_n);
  const std::int64_t tail = rows * tail_columns;
  const std::int64_t meanwhile = config.tail_share() * (rounds * clusters - whole);
  const std::int64_t left = ceil_div(std::max<std::int64_t>(0, tail - meanwhile), clusters);
  return {.grid = {.rows = all.rows, .columns = columns, .band = all.band},
          .tail = {.rows = rows,
                   .columns = static_cast<int>(tail_columns),
                   .whole_columns = static_cast<int>(right)},
          .longest = static_cast<double>(rounds * config.tile_n) +
                     tail_cost(config) * static_cast<double>(left * config.tail_n),
          .computed = whole * config.tile_n + tail * config.tail_n};
}

// Whole tiles, unless narrow ones end sooner: in all rows, or in those that make the number of whole tiles that of
// full rounds.
Cover cover(const TileConfig& config, const TileShape& shape, int num_sms) {
  const TileGrid all = grid_of(config, shape);
  const std::int64_t tiles = std::int64_t{all.rows} * all.columns;
  const std::int64_t rounds = ceil_div(tiles * config.cluster, num_sms);
  const Cover whole{.grid = all,
                    .longest = static_cast<double>(rounds * config.tile_n),
                    .computed = tiles * config.tile_n};
  if (!config.has_tail()) return whole;
  Cover best = whole;
  const std::int64_t clusters = num_sms / config.cluster;
  const std::int64_t left = tiles % clusters;
  for (int columns = all.columns - 1; columns * std::int64_t{all.rows} >= clusters; --columns) {
    const auto rows = static_cast<int>(ceil_div(left, all.columns - columns));
    for (const int tail_rows : {std::min(rows, all.rows), all.rows}) {
      const Cover tail = with_tail(config, shape, all, columns, tail_rows, clusters);
      if (tail.longest < whole.longest && tail.ends_before(best)) best = tail;
    }
  }
  return best;
}

double cost(const TileVariant& variant, const TileShape& shape, int num_sms) {
  return cover(variant.config, shape, num_sms).longest * variant.relative_cost;
}

// f16 results show what the tensor cores drop from sums over 512 of K, and not what they drop from those over 128.
Scaling scaling_of(const FusedQkvProblem& problem) {
  if (!is_fp8(problem.x_dtype)) return Scaling::none;
  const bool is_short = has_results_of(DType::f16, problem.out_dtype, problem.cache.row_format) &&
                        !problem.allow_fast_accum;
  return problem.has_block_scales || is_short ? Scaling::blocks : Scaling::rows;
}

}  // namespace

bool has_results_of(DType dtype, DType out_dtype, const RowFormat& format) {
  return out_dtype == dtype ||
         std::any_of(format.parts.begin(), format.parts.begin() + format.num_parts,
                     [&](const RowPart& part) { return part.dtype == dtype; });
}

std::string refuse_tiles(const FusedQkvProblem& problem) {
  const bool is_fp8_product = problem.weight_format == WeightFormat::fp8 &&
                              problem.weight_dtype == DType::fp8_e4m3 &&
                              problem.x_dtype == DType::fp8_e4m3;
  const bool is_dense_product =
      problem.weight_format == WeightFormat::dense && problem.weight_dtype == problem.x_dtype;
  if (!is_fp8_product && !is_dense_product) {
    return "x and weight are not both bf16, f16, f32 or e4m3";
  }
  if (problem.x_dtype == DType::f32 && !problem.allow_tf32) return "tf32 products are not allowed";
  // The tensor cores keep 13 bits of a sum of e4m3 products, for 128 of K at least: enough for 16-bit results.
  if (is_fp8_product && has_results_of(DType::f32, problem.out_dtype, problem.cache.row_format) &&
      (problem.has_block_scales || !problem.allow_fast_accum)) {
    return "sums of e4m3 products have too few bits for f32 results";
  }
  if (problem.weight_packing != WeightPacking::none) return "weight is packed for another kernel";
  if (problem.has_perm) return "columns are permuted";
  if (problem.activations != Activations::exact) return "activations are rounded to int8";
  const std::int64_t row = problem.cache.row_format.width();
  const std::int64_t kv_dim = row * problem.cache.num_kv_heads * (problem.cache.is_mla ? 1 : 2);
  if ((problem.q_dim + kv_dim) % kGroupRows != 0) return "rows of weight are not a multiple of 32";
  if (problem.q_dim % 8 != 0 || row % 8 != 0) return "a head is not a multiple of 8 columns";
  if (problem.alignment % 16 != 0) return "rows are not aligned to 16 bytes";
  return "";
}

TileShape tile_shape(const FusedQkvProblem& problem) {
  const RowFormat& format = problem.cache.row_format;
  const bool is_mla = problem.cache.is_mla;
  const std::int64_t kv_dim = format.width() * problem.cache.num_kv_heads;
  // Columns that share a scale of the tiles' own making. Products of tf32 have no such tiles: their rows wait.
  const int granule =
      problem.x_dtype == DType::f32 ? 0 : coded_granule(format, problem.q_dim, is_mla);
  return {.tokens = problem.ragged.tokens,
          .columns = problem.q_dim + (is_mla ? 1 : 2) * kv_dim,
          .dtype = problem.x_dtype,
          .scaling = scaling_of(problem),
          .allow_fast_accum = problem.allow_fast_accum,
          .granule = granule};
}

TilePlan plan_tiles(const TileShape& shape, int num_sms) {
  const TileVariant* best = nullptr;
  for (const TileVariant& variant : kTileVariants) {
    if (!takes(variant.config, shape)) continue;
    if (best == nullptr || cost(variant, shape, num_sms) < cost(*best, shape, num_sms)) {
      best = &variant;
    }
  }
  if (best == nullptr) return {};
  const TileConfig& config = best->config;
  const Cover tiles = cover(config, shape, num_sms);
  const std::int64_t clusters =
      std::min<std::int64_t>(std::int64_t{num_sms} * config.blocks_per_sm / config.cluster,
                             std::int64_t{tiles.grid.rows} * tiles.grid.columns);
  // A sharer's part of the tile. All tiles have as many tokens, or nearly: rows past the end, which the copy
  // engine fills with zeros, take it longer than rows that are there.
  const std::int64_t row_tiles = std::int64_t{tiles.grid.rows} * config.weight_sharers();
  const std::int64_t needed = ceil_div(shape.tokens, 8 * config.token_sharers() * row_tiles) * 8;
  return {.variant = best,
          .grid = tiles.grid,
          .tail = tiles.tail,
          .box_tokens = static_cast<int>(
              std::min<std::int64_t>(config.kept_tokens / config.token_sharers(), needed)),
          .blocks = static_cast<int>(clusters * config.cluster),
          // If all tiles run at a time, the others find in L2 what the first of a column has read.
          .reads_weight_once = tiles.grid.rows == 1 ||
                               clusters == std::int64_t{tiles.grid.rows} * tiles.grid.columns};
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
