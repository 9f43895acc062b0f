// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/flash_attention/prefill/plan_prefill.h"

#include <algorithm>

#include "cuda/common/mask/visible_range.h"
#include "cuda/common/prefill_attention/fp8/transpose_values.h"
#include "cuda/common/prefill_attention/tail_cuts.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/softmax/score.h"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"

namespace quire::cuda::sm90::flash_attention {

namespace {

// Copies come in whole groups of 8 rows, the pattern of the swizzle.
constexpr std::int64_t kFewestBoxRows = 8;

// What a path may put into the workspace, where the caller sets no bound.
constexpr std::int64_t kMostDequantizedBytes = std::int64_t{1} << 30;
// Of a bound that the caller sets, what copies leave for counters, tables and roundings: so much, and a part of each
// sequence's copies.
constexpr std::int64_t kUncopiedBytes = std::int64_t{1} << 20;
constexpr std::int64_t kUncopiedPart = 64;

// A grid's second and third dimension, along which the kernels that copy count sequences.
constexpr std::int64_t kMostSequences = 65535;

// Query rows of a sequence's KV head (tokens × heads) from which making a copy of e4m3 keys once
// costs less than what it saves every tile of rows. Measured: 2048 rows over 8704 keys take 495 µs
// dequantized, 508 direct; 344 with e4m3 products.
constexpr std::int64_t kFewestDequantizedRows = 1536;
constexpr std::int64_t kFewestDequantizingRows = 1024;
constexpr std::int64_t kFewestFp8Rows = 256;
constexpr std::int64_t kMostTransposingRows = 2048;

int box_rows_of(std::int64_t page_size, int block_keys) {
  int rows = 1;
  while (page_size % (2 * rows) == 0 && block_keys % (2 * rows) == 0) rows *= 2;
  return rows;
}

std::int64_t group_of(const FlashAttentionProblem& problem) {
  return problem.heads / problem.cache.num_kv_heads;
}

// Rows of q's dtype, as products read them.
bool is_plain(const FlashAttentionProblem& problem) {
  const RowFormat& format = problem.cache.row_format;
  return format.is_uniform() && format.parts[0].dtype == problem.q_dtype &&
         format.parts[0].scale_source == ScaleSource::none;
}

// Rows of e4m3 whose scales the kernel takes in, if they have any.
bool is_e4m3(const FlashAttentionProblem& problem) {
  const RowFormat& format = problem.cache.row_format;
  return format.is_uniform() && format.parts[0].dtype == DType::fp8_e4m3 &&
         (format.parts[0].scale_source == ScaleSource::none || problem.has_head_scales);
}

struct Wanted {
  DType cache_dtype;
  bool has_fp8_products;
  bool transposes;
  bool dequantizes;
  Scores scores;
};

const PrefillVariant* find(const FlashAttentionProblem& problem, const Wanted& wanted) {
  const auto* found = std::ranges::find_if(kPrefillVariants, [&](const PrefillVariant& variant) {
    const PrefillConfig& config = variant.config;
    return config.dtype == problem.q_dtype && config.cache_dtype == wanted.cache_dtype &&
           config.head_dim == problem.head_dim && config.value_dim == problem.value_dim &&
           config.has_fp8_products() == wanted.has_fp8_products &&
           variant.transposes() == wanted.transposes &&
           config.dequantizes() == wanted.dequantizes && config.scores == wanted.scores;
  });
  return found == std::end(kPrefillVariants) ? nullptr : found;
}

// Modified scores may be of any kind.
const PrefillVariant* find(const FlashAttentionProblem& problem, PrefillPath path, Scores scores) {
  const DType stored = problem.cache.row_format.parts[0].dtype;
  const bool is_dequantized = path == PrefillPath::dequantized || path == PrefillPath::dequantizing;
  Wanted wanted{.cache_dtype = is_dequantized ? problem.q_dtype : stored,
                .has_fp8_products = path == PrefillPath::fp8 || path == PrefillPath::transposing,
                .transposes = path == PrefillPath::transposing,
                .dequantizes = path == PrefillPath::dequantizing,
                .scores = scores};
  const PrefillVariant* found = find(problem, wanted);
  wanted.scores = Scores::modified;
  return found == nullptr ? find(problem, wanted) : found;
}

// Of a sequence's page table that its keys can reach; at least one.
std::int64_t columns_of(const FlashAttentionProblem& problem) {
  const std::int64_t all = problem.cache.max_pages;
  if (problem.ragged.max_keys < 0) return all;
  const std::int64_t page_size = problem.cache.page_size;
  return std::max<std::int64_t>(
      std::min(all, (problem.ragged.max_keys + page_size - 1) / page_size), 1);
}

// Bytes of a path's copies for one key of one KV head.
std::int64_t key_bytes(const FlashAttentionProblem& problem, PrefillPath path) {
  return path == PrefillPath::fp8
             ? problem.value_dim
             : bytes_for(problem.q_dtype, problem.head_dim + problem.value_dim);
}

// Of a path's copies for one sequence.
std::int64_t sequence_bytes(const FlashAttentionProblem& problem, PrefillPath path) {
  const std::int64_t keys = columns_of(problem) * problem.cache.page_size + kTransposedKeys;
  return keys * problem.cache.num_kv_heads * key_bytes(problem, path);
}

// Sequences whose copies have room in the caller's bound.
std::int64_t sequences_at_once(const FlashAttentionProblem& problem, PrefillPath path) {
  const std::int64_t bytes = sequence_bytes(problem, path);
  return std::max<std::int64_t>(problem.max_workspace_bytes - kUncopiedBytes, 0) /
         std::max<std::int64_t>(bytes + bytes / kUncopiedPart, 1);
}

// A bound is kept by parts of the batch. Without one, bits must not depend on how many sequences come together: with
// batch_invariant everything has room.
bool has_room(const FlashAttentionProblem& problem, PrefillPath path) {
  if (problem.ragged.batch > kMostSequences) return false;
  if (problem.max_workspace_bytes > 0) return sequences_at_once(problem, path) > 0;
  return problem.batch_invariant ||
         problem.ragged.batch * sequence_bytes(problem, path) <= kMostDequantizedBytes;
}

bool makes_copies(PrefillPath path) {
  return path != PrefillPath::direct && path != PrefillPath::transposing;
}

// Where a tile's sums may be made of splits, and a tile can be so long that this pays. A warp
// counts the tiles: of as many sequences as it has lanes.
bool may_cut_tail(const FlashAttentionProblem& problem, const PrefillConfig& config) {
  constexpr std::int64_t kMostCountedSequences = 32;
  const std::int64_t keys = columns_of(problem) * problem.cache.page_size;
  return config.cuts_tiles() && !problem.batch_invariant &&
         problem.ragged.batch <= kMostCountedSequences &&
         keys >= std::int64_t{2 * kFewestSplitBlocks + kFewestSavedBlocks} * config.block_keys;
}

std::int64_t fewest_rows(PrefillPath path) {
  switch (path) {
    case PrefillPath::fp8:
      return kFewestFp8Rows;
    case PrefillPath::dequantizing:
      return kFewestDequantizingRows;
    default:
      return kFewestDequantizedRows;
  }
}

// Query rows that share what is made once.
bool shares_enough(const FlashAttentionProblem& problem, PrefillPath path) {
  const std::int64_t batch = std::max<std::int64_t>(problem.ragged.batch, 1);
  const std::int64_t fewest = fewest_rows(path);
  return !problem.batch_invariant && problem.ragged.tokens * group_of(problem) >= fewest * batch;
}

// Tiles of query rows, a KV head's, that V is transposed for each by itself.
bool has_few_tiles(const FlashAttentionProblem& problem) {
  const std::int64_t batch = std::max<std::int64_t>(problem.ragged.batch, 1);
  return problem.ragged.tokens * group_of(problem) <= kMostTransposingRows * batch;
}

bool takes(const FlashAttentionProblem& problem, PrefillPath path, Scores scores) {
  if (find(problem, path, scores) == nullptr) return false;
  if (path == PrefillPath::direct) return is_plain(problem) || is_e4m3(problem);
  // Only the direct path takes rows that begin within a page.
  if (problem.has_ragged_keys) return false;
  if (path == PrefillPath::transposing) {
    return is_e4m3(problem) && problem.allow_fp8_products && has_few_tiles(problem);
  }
  if (!has_room(problem, path)) return false;
  // Both make blocks of the keys that queries see, and wait for them: a row that sees none would wait for ever.
  const bool makes_seen_blocks = path == PrefillPath::fp8 || path == PrefillPath::dequantizing;
  if (problem.has_key_lengths && makes_seen_blocks) return false;
  if (path == PrefillPath::fp8) return is_e4m3(problem) && problem.allow_fp8_products;
  if (path == PrefillPath::dequantizing) {
    return is_e4m3(problem) && problem.cache.values_match_keys;
  }
  // What scales give may be too large for f16.
  return problem.q_dtype == DType::bf16 || (is_e4m3(problem) && !problem.cache.has_scales);
}

}  // namespace

Scores scores_of(const FlashAttentionProblem& problem) {
  const bool is_scaled = problem.scale > 0.0 && !problem.has_softcap && !problem.has_alibi &&
                         problem.mask.key_intervals == 0;
  return is_scaled ? Scores::scaled : Scores::modified;
}

PrefillPath prefill_path(const FlashAttentionProblem& problem, Scores scores) {
  const bool is_direct = takes(problem, PrefillPath::direct, scores);
  if (is_direct && is_plain(problem)) return PrefillPath::direct;
  for (const PrefillPath path : {PrefillPath::transposing, PrefillPath::fp8,
                                 PrefillPath::dequantizing, PrefillPath::dequantized}) {
    if (takes(problem, path, scores) && (!is_direct || shares_enough(problem, path))) return path;
  }
  return PrefillPath::direct;
}

std::string refuse_prefill(const FlashAttentionProblem& problem) {
  if (problem.q_dtype != DType::bf16 && problem.q_dtype != DType::f16) {
    return "q is not bf16 or f16";
  }
  if (problem.cache.is_mla) return "the cache is MLA's";
  if (problem.max_key_blocks > 0) return "key_blocks: rows of a tile would read other keys each";
  if (problem.out_dtype != problem.q_dtype) return "out is not of q's dtype";
  if (find(problem, PrefillPath::dequantized, Scores::scaled) == nullptr) {
    return "no tile kernel of head_dim " + std::to_string(problem.head_dim) + ", value_dim " +
           std::to_string(problem.value_dim);
  }
  const Scores scores = scores_of(problem);
  if (!takes(problem, prefill_path(problem, scores), scores)) {
    return "the cache does not hold unscaled numbers of q's dtype, nor e4m3 with one scale at most "
           "for a KV head, and to dequantize it q must be bf16 and 1 GiB enough";
  }
  if (problem.cache.num_pages == 0) return "the cache has no pages";
  if (problem.cache.page_size % kFewestBoxRows != 0) return "page_size is no multiple of 8";
  if (problem.alignment % 16 != 0) return "rows are not aligned to 16 bytes";
  std::string scale = refuse_scale(problem.scale);
  return scale.empty() ? refuse_narrowed_range(problem.mask) : scale;
}

PrefillPlan plan_prefill(const FlashAttentionProblem& problem, Scores scores, int num_sms) {
  PrefillPlan plan;
  plan.path = prefill_path(problem, scores);
  plan.variant = find(problem, plan.path, scores);
  plan.columns = static_cast<int>(columns_of(problem));
  const PrefillConfig& config = plan.variant->config;
  plan.box_rows = box_rows_of(problem.cache.page_size, config.block_keys);
  while (group_of(problem) % (2 << plan.tile_heads_log2) == 0 &&
         config.rows() % (2 << plan.tile_heads_log2) == 0) {
    ++plan.tile_heads_log2;
  }
  const std::int64_t tile_heads = std::int64_t{1} << plan.tile_heads_log2;
  // One more for each sequence's last, partly filled tile.
  const std::int64_t tiles =
      (problem.ragged.tokens * tile_heads / config.rows() + problem.ragged.batch) *
      (problem.heads / tile_heads);
  // With few tiles they would wait for what is transposed beside them.
  plan.transposes_ahead = plan.path == PrefillPath::fp8 && !has_few_tiles(problem);
  plan.cuts_tail = may_cut_tail(problem, config);
  plan.blocks = num_sms;
  const std::int64_t most = problem.max_workspace_bytes;
  if (most > 0 && PrefillWorkspace(problem, plan).bytes > most) plan.cuts_tail = false;
  if (!plan.cuts_tail) {
    const std::int64_t cluster = config.cluster;
    const std::int64_t clusters = std::min(tiles, std::max<std::int64_t>(num_sms / cluster, 1));
    plan.blocks = static_cast<int>(clusters * cluster);
  }
  return plan;
}

FlashAttentionProblem launch_part(const FlashAttentionProblem& problem, Scores scores) {
  const PrefillPath path = prefill_path(problem, scores);
  if (problem.max_workspace_bytes == 0 || !makes_copies(path)) return problem;
  const std::int64_t batch = std::max<std::int64_t>(problem.ragged.batch, 1);
  FlashAttentionProblem part = problem;
  part.ragged.batch = std::min(problem.ragged.batch, sequences_at_once(problem, path));
  part.ragged.tokens = (problem.ragged.tokens * part.ragged.batch + batch - 1) / batch;
  return part;
}

namespace {

// In thousandths, of the multiprocessors that come last. Of 132 that begin together most end within
// 1 %, some 3 % after them, but not in all shapes: with 10 here 2048 tokens over 32 768 keys took
// 0.6 % less, 4 · 512 over 8704 of 64 heads 0.7 % more.
constexpr int kSlowness = 5;

}  // namespace

int transposed_blocks(const FlashAttentionProblem& problem, const PrefillPlan& plan) {
  const std::int64_t keys = plan.columns * problem.cache.page_size;
  return static_cast<int>((keys + kTransposedKeys - 1) / kTransposedKeys);
}

int dequantized_blocks(const FlashAttentionProblem& problem, const PrefillPlan& plan) {
  const std::int64_t keys = plan.columns * problem.cache.page_size;
  return static_cast<int>((keys + kDequantizedKeys - 1) / kDequantizedKeys);
}

PrefillWorkspace::PrefillWorkspace(const FlashAttentionProblem& problem, const PrefillPlan& plan,
                                   void* base) {
  Carver carver(base);
  const PrefillConfig& config = plan.variant->config;
  const std::int64_t splits = plan.cuts_tail ? 2 * std::int64_t{plan.blocks} * config.consumers : 0;
  // K and V.
  const std::int64_t blocks = plan.path == PrefillPath::dequantizing
                                  ? 2 * problem.ragged.batch * problem.cache.num_kv_heads *
                                        dequantized_blocks(problem, plan)
                                  : 0;
  // Counters of launch_prefill.h.
  const std::int64_t heads =
      plan.path == PrefillPath::fp8 ? problem.ragged.batch * problem.cache.num_kv_heads + 1 : 0;
  const std::int64_t zeros = 1 + splits + blocks + heads;
  next_tile = carver.take<int>(zeros);
  zero_bytes = zeros * std::int64_t{sizeof(int)};
  states = reinterpret_cast<std::uint32_t*>(next_tile + 1 + splits);
  if (blocks > 0) {
    rows = carver.take<std::byte>(blocks * kDequantizedKeys *
                                  bytes_for(problem.q_dtype, problem.head_dim));
  }
  if (plan.cuts_tail) {
    const std::int64_t split_threads = splits * 128;
    tail = {.sums = carver.take<float>(split_threads * config.value_dim / 2),
            .rows = carver.take<float4>(split_threads),
            .arrivals = next_tile + 1,
            .slowness = kSlowness};
  }
  const std::int64_t pages = problem.ragged.batch * plan.columns;
  const std::int64_t page_rows = pages * problem.cache.num_kv_heads * problem.cache.page_size;
  if (plan.path == PrefillPath::dequantized) {
    keys = carver.take<std::byte>(page_rows * bytes_for(problem.q_dtype, problem.head_dim));
    values = carver.take<std::byte>(page_rows * bytes_for(problem.q_dtype, problem.value_dim));
    table = carver.take<std::uint32_t>(pages);
  } else if (plan.path == PrefillPath::fp8) {
    transposed =
        carver.take<std::byte>(problem.ragged.batch * transposed_blocks(problem, plan) *
                               problem.cache.num_kv_heads * kTransposedKeys * kTransposedColumns);
  }
  bytes = carver.bytes();
}

}  // namespace quire::cuda::sm90::flash_attention
