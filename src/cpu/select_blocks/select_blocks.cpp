// SPDX-License-Identifier: Apache-2.0
// First the scores of blocks, by items that share their keys among some tokens and heads and cover whole blocks; then
// the best of every row. Scores of so many tokens at a time as kScoreBytes hold.
#include "cpu/select_blocks/select_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/attention/mask_ranges.h"
#include "cpu/attention/work_list.h"
#include "cpu/runtime/row_encoding.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/work_estimate.h"
#include "cpu/select_blocks/kernels.h"
#include "quire/paged_kv_operand.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kItemTokens = 16;
constexpr std::int64_t kItemKeys = 2048;  // about
constexpr std::int64_t kScoreBytes = std::int64_t{64} << 20;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct TokenRange {
  std::int64_t first;  // within the sequence
  std::int64_t count;
};

// Scores of these tokens and the query heads of a KV head for the blocks [first_block, last_block).
struct ScoreItem {
  std::int64_t sequence;
  TokenRange tokens;
  std::int64_t kv_head;
  std::int64_t first_block;
  std::int64_t last_block;
};

// What orders the blocks of a row: forced ones, then greater scores, then lower blocks.
std::uint64_t code_of(float score, bool is_forced, std::int64_t block) {
  constexpr std::uint32_t kSign = 0x80000000U;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);
  const std::uint32_t rank = (bits & kSign) != 0 ? ~bits : bits | kSign;
  const std::uint32_t first = is_forced ? std::numeric_limits<std::uint32_t>::max() : rank;
  return std::uint64_t{first} << 32 | static_cast<std::uint32_t>(~block);
}

class BlockSelection {
 public:
  BlockSelection(const SelectBlocksArgs& args, const Context& context, Target target)
      : args_(args),
        kernels_(key_score_kernels(target)),
        workers_(context),
        operand_(args.cache.key(args.layer)),
        encoding_(operand_.layout()),
        mask_(args.mask),
        sequences_(sequence_spans(args.row_offsets, args.cache)),
        kv_heads_(operand_.heads().count),
        group_(args.q.shape[1] / kv_heads_) {
    for (const SequenceSpan& sequence : sequences_) {
      blocks_ = std::max(blocks_, blocks_in(sequence.num_keys()));
    }
    workers_ = workers_.for_nanoseconds(nanoseconds(target));
  }

  // Tokens in parts whose scores fit.
  void run() {
    const std::int64_t token_bytes = args_.q.shape[1] * blocks_ * std::int64_t{sizeof(float)};
    const std::int64_t most =
        std::max<std::int64_t>(1, kScoreBytes / std::max<std::int64_t>(token_bytes, 1));
    for (std::int64_t first = 0; first < args_.q.shape[0]; first += most) {
      run_part(first, std::min(most, args_.q.shape[0] - first));
    }
  }

 private:
  std::int64_t blocks_in(std::int64_t keys) const {
    return (keys + args_.block_size - 1) / args_.block_size;
  }

  double nanoseconds(Target target) const {
    const auto row_bytes = static_cast<double>(args_.cache.key(args_.layer).row_format.row_bytes);
    double sum = 0.0;
    for (const SequenceSpan& sequence : sequences_) {
      const auto tokens = static_cast<double>(sequence.num_tokens);
      const double products = tokens * static_cast<double>(group_ * args_.q.shape[2]) /
                              products_per_nanosecond(target, DType::f32);
      const double reads = std::ceil(tokens / kItemTokens) * nanoseconds_of_bytes(row_bytes);
      sum += static_cast<double>(sequence.num_keys() * kv_heads_) * (reads + products);
    }
    return sum;
  }

  // The tokens [first, first + count) of the batch.
  void run_part(std::int64_t first, std::int64_t count) {
    first_token_ = first;
    const std::vector<ScoreItem> items = cut(first, first + count);
    const std::int64_t rows = kItemTokens * group_;
    const std::int64_t kernel_bytes =
        round_up_to_line(kernels_.scratch_bytes(rows, args_.q.shape[2]));
    const std::int64_t worker_bytes =
        std::max(kernel_bytes + round_up_to_line(rows * kScoredKeys * std::int64_t{sizeof(float)}),
                 round_up_to_line(blocks_ * std::int64_t{sizeof(std::uint64_t)}));
    const std::int64_t score_rows = count * args_.q.shape[1];
    std::byte* scratch = thread_scratch(worker_bytes * workers_.count +
                                        score_rows * blocks_ * std::int64_t{sizeof(float)});
    scores_ = reinterpret_cast<float*>(scratch + worker_bytes * workers_.count);
    parallel_for(std::ssize(items), workers_, [&](std::int64_t item, int worker) {
      std::byte* own = scratch + worker * worker_bytes;
      score(items[static_cast<std::size_t>(item)], own,
            reinterpret_cast<float*>(own + kernel_bytes));
    });
    choose_all(first, first + count, scratch, worker_bytes);
  }

  std::vector<ScoreItem> cut(std::int64_t first, std::int64_t last) const {
    const std::int64_t step = std::max<std::int64_t>(1, kItemKeys / args_.block_size);
    std::vector<ScoreItem> items;
    for (std::int64_t s = 0; s < std::ssize(sequences_); ++s) {
      const SequenceSpan& sequence = sequences_[static_cast<std::size_t>(s)];
      const std::int64_t begin = std::max<std::int64_t>(first - sequence.first_token, 0);
      const std::int64_t end = std::min(last - sequence.first_token, sequence.num_tokens);
      for (std::int64_t token = begin; token < end; token += kItemTokens) {
        const TokenRange tokens{token, std::min(kItemTokens, end - token)};
        const std::int64_t blocks = blocks_in(seen_keys(sequence, token + tokens.count - 1));
        for (std::int64_t head = 0; head < kv_heads_; ++head) {
          for (std::int64_t block = 0; block < blocks; block += step) {
            items.push_back({s, tokens, head, block, std::min(block + step, blocks)});
          }
        }
      }
    }
    return items;
  }

  // A token sees those in front of it.
  std::int64_t seen_keys(const SequenceSpan& sequence, std::int64_t token) const {
    return mask_
        .range(sequence.first_token + token, sequence.cache_length + token, sequence.num_keys())
        .end;
  }

  float* scores_of(std::int64_t token, std::int64_t head) const {
    return scores_ + ((token - first_token_) * args_.q.shape[1] + head) * blocks_;
  }

  // NaN: of a block none of whose keys has a row.
  void score(const ScoreItem& item, std::byte* scratch, float* scores) const {
    const SequenceSpan& sequence = sequences_[static_cast<std::size_t>(item.sequence)];
    std::vector<const std::byte*> queries;
    for (std::int64_t token = 0; token < item.tokens.count; ++token) {
      for (std::int64_t i = 0; i < group_; ++i) {
        const std::int64_t row = sequence.first_token + item.tokens.first + token;
        const std::int64_t head = item.kv_head * group_ + i;
        queries.push_back(args_.q.as<const std::byte>() +
                          bytes_for(args_.q.dtype, args_.q.offset({row, head, 0})));
        std::fill(scores_of(row, head) + item.first_block, scores_of(row, head) + item.last_block,
                  std::numeric_limits<float>::quiet_NaN());
      }
    }
    const KeyScoreItem own{.queries = queries.data(),
                           .q_dtype = args_.q.dtype,
                           .rows = std::ssize(queries),
                           .width = args_.q.shape[2],
                           .plan = encoding_.plan()};
    kernels_.pack_queries(own, scratch);
    const std::int64_t last_key =
        std::min(item.last_block * args_.block_size,
                 seen_keys(sequence, item.tokens.first + item.tokens.count - 1));
    for (std::int64_t key = item.first_block * args_.block_size; key < last_key;
         key += kScoredKeys) {
      const auto count = static_cast<int>(std::min<std::int64_t>(kScoredKeys, last_key - key));
      RowAddress rows[kScoredKeys];
      operand_.locate(item.sequence, item.kv_head, key, count, rows);
      kernels_.score(own, rows, count, scores, scratch);
      for (std::int64_t row = 0; row < own.rows; ++row) {
        add_keys(item, row, key, count, rows, scores + row * kScoredKeys);
      }
    }
  }

  // Of a row of the item: what it sees of some keys.
  void add_keys(const ScoreItem& item, std::int64_t row, std::int64_t first, int count,
                const RowAddress* rows, const float* scores) const {
    const SequenceSpan& sequence = sequences_[static_cast<std::size_t>(item.sequence)];
    const std::int64_t token = item.tokens.first + row / group_;
    float* blocks = scores_of(sequence.first_token + token, item.kv_head * group_ + row % group_);
    const std::int64_t seen = std::min<std::int64_t>(count, seen_keys(sequence, token) - first);
    for (std::int64_t i = 0; i < seen; ++i) {
      if (rows[i].row == nullptr) continue;
      float& best = blocks[(first + i) / args_.block_size];
      const float score = std::isnan(scores[i]) ? -kInfinity : scores[i];
      if (!(best >= score)) best = score;
    }
  }

  void choose_all(std::int64_t first, std::int64_t last, std::byte* scratch,
                  std::int64_t worker_bytes) const {
    for (const SequenceSpan& sequence : sequences_) {
      const std::int64_t begin = std::max<std::int64_t>(first - sequence.first_token, 0);
      const std::int64_t end = std::min(last - sequence.first_token, sequence.num_tokens);
      if (begin >= end) continue;
      const std::int64_t heads = args_.q.shape[1];
      const Workers workers = workers_.at_most((end - begin) * heads);
      parallel_for((end - begin) * heads, workers, [&](std::int64_t row, int worker) {
        choose(sequence, begin + row / heads, row % heads,
               reinterpret_cast<std::uint64_t*>(scratch + worker * worker_bytes));
      });
    }
  }

  void choose(const SequenceSpan& sequence, std::int64_t token, std::int64_t head,
              std::uint64_t* codes) const {
    const std::int64_t row = sequence.first_token + token;
    const std::int64_t own = (sequence.cache_length + token) / args_.block_size;
    const std::int64_t blocks = blocks_in(seen_keys(sequence, token));
    const float* scores = scores_of(row, head);
    std::int64_t count = 0;
    for (std::int64_t block = 0; block < blocks; ++block) {
      if (std::isnan(scores[block])) continue;
      const bool is_local = block <= own && own - block < args_.local_blocks;
      codes[count++] = code_of(scores[block], is_local || block < args_.first_blocks, block);
    }
    const std::int64_t slots = args_.out.shape[2];
    if (count > slots) std::nth_element(codes, codes + slots, codes + count, std::greater<>());
    count = std::min(count, slots);
    auto* out = args_.out.as<std::int32_t>() + args_.out.offset({row, head, 0});
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      out[slot] =
          slot < count ? static_cast<std::int32_t>(~static_cast<std::uint32_t>(codes[slot])) : -1;
    }
    std::sort(out, out + count);
  }

  const SelectBlocksArgs& args_;
  const KeyScoreKernels& kernels_;
  Workers workers_;
  PagedKvOperand operand_;
  RowEncoding encoding_;
  MaskRanges mask_;
  std::vector<SequenceSpan> sequences_;
  std::int64_t kv_heads_;
  std::int64_t group_;            // query heads of a KV head
  std::int64_t blocks_ = 0;       // of the longest sequence
  std::int64_t first_token_ = 0;  // of the part
  float* scores_ = nullptr;       // [tokens of the part, heads, blocks]
};

}  // namespace

void select_blocks(const SelectBlocksArgs& args, const Context& context, Target target) {
  BlockSelection(args, context, target).run();
}

}  // namespace quire::cpu
