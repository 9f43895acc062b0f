// SPDX-License-Identifier: Apache-2.0
// Groups of a sequence's tokens share the packing of its keys. A few long rows are cut over their
// keys too: every cut keeps a top k of its own, and the best of all of them are the result,
// whatever the cuts.
#include "cpu/mla_indexer/mla_indexer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "cpu/attention/mask_ranges.h"
#include "cpu/attention/work_list.h"
#include "cpu/mla_indexer/kernels.h"
#include "cpu/mla_indexer/top_k.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/work_estimate.h"
#include "quire/paged_kv_operand.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kGroupTokens = 16;

// Tokens [first_token, first_token + num_tokens) of a sequence and a range of its keys.
struct IndexerPiece {
  std::int64_t sequence;
  std::int64_t first_token;  // within the sequence
  std::int64_t num_tokens;
  KeyRange keys;
  std::int64_t first_list;  // candidate list of its first token; -1: it writes results
};

// ScoredKey lists of one token, one per cut, to be joined.
struct IndexerMerge {
  std::int64_t token;  // row of q and out
  std::int64_t first_list;
  std::int64_t list_step;
  std::int64_t num_lists;
};

class IndexerRun {
 public:
  IndexerRun(const MlaIndexerArgs& args, const Context& context, Target target)
      : args_(args),
        kernels_(indexer_kernels(target)),
        products_(products_per_nanosecond(target, DType::bf16)),
        workers_(context),
        operand_(args.cache.key(args.layer)),
        mask_(args.mask),
        sequences_(sequence_spans(args.row_offsets, args.cache)),
        kept_(std::min(args.top_k, most_keys())) {}

  void run() {
    workers_ = workers_.for_nanoseconds(nanoseconds());
    cut();
    if (pieces_.empty()) return;
    const auto num_pieces = static_cast<std::int64_t>(pieces_.size());
    const Workers workers = workers_.at_most(num_pieces);
    kernel_bytes_ = round_up_to_line(kernels_.scratch_bytes(shape(kGroupTokens)));
    list_bytes_ = TopK::capacity(kept_) * static_cast<std::int64_t>(sizeof(ScoredKey));
    const std::int64_t worker_bytes =
        std::max(kernel_bytes_ + round_up_to_line(kGroupTokens * list_bytes_),
                 round_up_to_line(join_bytes()));
    const std::int64_t kept_bytes = kept_ * static_cast<std::int64_t>(sizeof(ScoredKey));
    std::byte* scratch = thread_scratch(worker_bytes * workers.count + num_lists_ * kept_bytes);
    lists_ = reinterpret_cast<ScoredKey*>(scratch + worker_bytes * workers.count);
    list_sizes_.assign(static_cast<std::size_t>(num_lists_), 0);
    parallel_for(num_pieces, workers, [&](std::int64_t piece, int worker) {
      search(pieces_[static_cast<std::size_t>(piece)], scratch + worker * worker_bytes);
    });
    parallel_for(static_cast<std::int64_t>(merges_.size()), workers,
                 [&](std::int64_t merge, int worker) {
                   join(merges_[static_cast<std::size_t>(merge)],
                        reinterpret_cast<std::int32_t*>(scratch + worker * worker_bytes));
                 });
  }

 private:
  std::int64_t most_keys() const {
    std::int64_t most = 0;
    for (const SequenceSpan& sequence : sequences_) most = std::max(most, sequence.num_keys());
    return most / args_.tokens_per_key;
  }

  // The ranks of a token's candidates, up to a multiple of 16.
  std::int64_t join_bytes() const {
    std::int64_t most_lists = 0;
    for (const IndexerMerge& merge : merges_) most_lists = std::max(most_lists, merge.num_lists);
    return (most_lists * kept_ + 16) * static_cast<std::int64_t>(sizeof(std::int32_t));
  }

  // Of the call on one thread: keys are decoded for every group of tokens.
  double nanoseconds() const {
    const auto heads = static_cast<double>(args_.q.shape[1]);
    const auto width = static_cast<double>(args_.q.shape[2]);
    double sum = 0.0;
    for (const SequenceSpan& sequence : sequences_) {
      const auto tokens = static_cast<double>(sequence.num_tokens);
      const double groups = std::ceil(tokens / kGroupTokens);
      sum += static_cast<double>(sequence.num_keys()) *
             (groups * nanoseconds_of_bytes(width) + tokens * heads * width / products_);
    }
    return sum;
  }

  IndexerShape shape(std::int64_t tokens) const {
    return {.tokens = tokens, .heads = args_.q.shape[1], .head_dim = args_.q.shape[2]};
  }

  KeyRange keys_of(const SequenceSpan& sequence, std::int64_t token) const {
    // At the last key that is whole once the token has come, or before the first.
    const std::int64_t position = (sequence.cache_length + token + 1) / args_.tokens_per_key - 1;
    return mask_.range(sequence.first_token + token, position,
                       sequence.num_keys() / args_.tokens_per_key);
  }

  // Tokens that see at most top_k keys are answered at once, unless their scores are wanted; the others become pieces.
  void cut() {
    std::vector<IndexerPiece> groups;
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      const SequenceSpan& sequence = sequences_[s];
      for (std::int64_t token = 0; token < sequence.num_tokens;) {
        const KeyRange keys = keys_of(sequence, token);
        const std::int64_t count = keys.end - keys.begin;
        if (count == 0 || (count <= args_.top_k && !args_.scores.has_value())) {
          write_all(static_cast<std::int64_t>(s), sequence.first_token + token, keys);
          ++token;
          continue;
        }
        const std::int64_t tokens = std::min(kGroupTokens, sequence.num_tokens - token);
        groups.push_back({.sequence = static_cast<std::int64_t>(s),
                          .first_token = token,
                          .num_tokens = tokens,
                          .keys = keys_of(sequence, token + tokens - 1),
                          .first_list = -1});
        token += tokens;
      }
    }
    cut_keys(groups);
  }

  void cut_keys(const std::vector<IndexerPiece>& groups) {
    if (groups.empty()) return;
    const auto num_groups = static_cast<std::int64_t>(groups.size());
    const std::int64_t wanted = std::max<std::int64_t>(1, 2 * workers_.count / num_groups);
    for (const IndexerPiece& group : groups) {
      const std::int64_t chunks = (group.keys.end + kIndexerChunk - 1) / kIndexerChunk;
      const std::int64_t step = (chunks + wanted - 1) / wanted * kIndexerChunk;
      const std::int64_t num_cuts = (group.keys.end + step - 1) / step;
      for (std::int64_t cut = 0; cut < num_cuts; ++cut) {
        IndexerPiece piece = group;
        piece.keys = {cut * step, std::min((cut + 1) * step, group.keys.end)};
        if (num_cuts > 1) piece.first_list = num_lists_ + cut * group.num_tokens;
        pieces_.push_back(piece);
      }
      if (num_cuts == 1) continue;
      const SequenceSpan& sequence = sequences_[static_cast<std::size_t>(group.sequence)];
      for (std::int64_t t = 0; t < group.num_tokens; ++t) {
        merges_.push_back({.token = sequence.first_token + group.first_token + t,
                           .first_list = num_lists_ + t,
                           .list_step = group.num_tokens,
                           .num_lists = num_cuts});
      }
      num_lists_ += num_cuts * group.num_tokens;
    }
    std::ranges::stable_sort(pieces_, [](const IndexerPiece& left, const IndexerPiece& right) {
      return left.num_tokens * (left.keys.end - left.keys.begin) >
             right.num_tokens * (right.keys.end - right.keys.begin);
    });
  }

  void locate(std::int64_t sequence, KeyRange range, IndexerKeys& keys) const {
    RowAddress addresses[kIndexerChunk];
    keys.count = static_cast<int>(range.end - range.begin);
    keys.has_holes = false;
    operand_.locate(sequence, 0, range.begin, keys.count, addresses);
    for (int i = 0; i < keys.count; ++i) {
      const bool exists = addresses[i].row != nullptr;
      keys.rows[i] = addresses[i].row;
      keys.scales[i] = exists ? addresses[i].plane : nullptr;
      keys.has_holes = keys.has_holes || !exists;
    }
  }

  void search(const IndexerPiece& piece, std::byte* scratch) const {
    const SequenceSpan& sequence = sequences_[static_cast<std::size_t>(piece.sequence)];
    const IndexerShape own_shape = shape(piece.num_tokens);
    const std::int64_t first = sequence.first_token + piece.first_token;
    IndexerQuery queries[kGroupTokens];
    std::vector<TopK> best;
    for (std::int64_t t = 0; t < piece.num_tokens; ++t) {
      queries[t] = query_of(first + t);
      best.emplace_back(reinterpret_cast<ScoredKey*>(scratch + kernel_bytes_ + t * list_bytes_),
                        kept_, kernels_.kth_rank);
    }
    kernels_.pack_queries(own_shape, queries, scratch);
    for (std::int64_t key = piece.keys.begin; key < piece.keys.end; key += kIndexerChunk) {
      IndexerKeys keys;
      locate(piece.sequence, {key, std::min(key + kIndexerChunk, piece.keys.end)}, keys);
      kernels_.pack_keys(own_shape, keys, scratch);
      for (std::int64_t t = 0; t < piece.num_tokens; ++t) {
        const KeyRange seen = keys_of(sequence, piece.first_token + t);
        const auto count = static_cast<int>(std::min<std::int64_t>(keys.count, seen.end - key));
        if (count > 0)
          take(own_shape, t, key, count, keys, best[static_cast<std::size_t>(t)], scratch);
      }
    }
    for (std::int64_t t = 0; t < piece.num_tokens; ++t) {
      deliver(piece, t, best[static_cast<std::size_t>(t)], first + t);
    }
  }

  IndexerQuery query_of(std::int64_t token) const {
    const TensorView& q = args_.q;
    const TensorView& scale = args_.q_scale;
    return {.q = q.as<const std::byte>() + bytes_for(q.dtype, q.offset({token, 0, 0})),
            .head_stride = bytes_for(q.dtype, q.strides[1]),
            .scales = scale.as<const float>() + scale.offset({token, 0}),
            .scale_stride = scale.strides[1]};
  }

  // The scores of one token and chunk go to its list.
  void take(const IndexerShape& own_shape, std::int64_t token, std::int64_t key, int count,
            const IndexerKeys& keys, TopK& best, std::byte* scratch) const {
    alignas(kCacheLine) float scores[kIndexerChunk];
    kernels_.score(own_shape, token, keys, scores, scratch);
    best.add(kernels_.filter({.first_position = static_cast<std::uint32_t>(key),
                              .count = count,
                              .takes_all = best.takes_all(),
                              .threshold = best.threshold(),
                              .keys = &keys},
                             scores, best.end()));
  }

  void deliver(const IndexerPiece& piece, std::int64_t index, TopK& best,
               std::int64_t token) const {
    const std::int64_t count = best.finish();
    if (piece.first_list < 0) {
      write(token, best.begin(), count);
      return;
    }
    const std::int64_t list = piece.first_list + index;
    std::copy_n(best.begin(), count, lists_ + list * kept_);
    list_sizes_[static_cast<std::size_t>(list)] = count;
  }

  std::span<const ScoredKey> list_of(const IndexerMerge& merge, std::int64_t index) const {
    const std::int64_t list = merge.first_list + index * merge.list_step;
    return {lists_ + list * kept_,
            static_cast<std::size_t>(list_sizes_[static_cast<std::size_t>(list)])};
  }

  // Of all lists at once: the k-th rank, then one pass in the order of the positions.
  void join(const IndexerMerge& merge, std::int32_t* ranks) const {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < merge.num_lists; ++i) {
      for (const ScoredKey& key : list_of(merge, i)) ranks[count++] = key.rank;
    }
    std::int64_t last = std::numeric_limits<std::int64_t>::min();  // takes all
    std::int64_t equals = 0;                                       // of that rank, to be taken
    if (count > kept_) {
      last = kernels_.kth_rank(ranks, count, kept_);
      equals = kept_ - std::count_if(ranks, ranks + count,
                                     [last](std::int32_t rank) { return rank > last; });
    }
    std::int64_t slot = 0;
    for (std::int64_t i = 0; i < merge.num_lists; ++i) {
      for (const ScoredKey& key : list_of(merge, i)) {
        if (key.rank < last || (key.rank == last && equals-- <= 0)) continue;
        put(merge.token, slot++, key);
      }
    }
    while (slot < args_.top_k) put_none(merge.token, slot++);
  }

  // The positions, which rise, then -1.
  void write(std::int64_t token, const ScoredKey* keys, std::int64_t count) const {
    for (std::int64_t slot = 0; slot < args_.top_k; ++slot) {
      slot < count ? put(token, slot, keys[slot]) : put_none(token, slot);
    }
  }

  void write_all(std::int64_t sequence, std::int64_t token, const KeyRange& keys) const {
    std::int64_t slot = 0;
    RowAddress rows[kIndexerChunk];
    for (std::int64_t first = keys.begin; first < keys.end; first += kIndexerChunk) {
      const auto count = std::min<std::int64_t>(kIndexerChunk, keys.end - first);
      operand_.locate(sequence, 0, first, count, rows);
      for (std::int64_t i = 0; i < count; ++i) {
        if (rows[i].row == nullptr) continue;
        *slot_of(token, slot++) = static_cast<std::int32_t>(first + i);
      }
    }
    while (slot < args_.top_k) put_none(token, slot++);
  }

  void put(std::int64_t token, std::int64_t slot, const ScoredKey& key) const {
    *slot_of(token, slot) = static_cast<std::int32_t>(key.position);
    if (args_.scores.has_value()) *score_of(token, slot) = score_of_rank(key.rank);
  }

  void put_none(std::int64_t token, std::int64_t slot) const {
    *slot_of(token, slot) = -1;
    if (args_.scores.has_value()) {
      *score_of(token, slot) = -std::numeric_limits<float>::infinity();
    }
  }

  float* score_of(std::int64_t token, std::int64_t slot) const {
    return args_.scores->as<float>() + args_.scores->offset({token, slot});
  }

  std::int32_t* slot_of(std::int64_t token, std::int64_t slot) const {
    return args_.out.as<std::int32_t>() + args_.out.offset({token, slot});
  }

  const MlaIndexerArgs& args_;
  const IndexerKernels& kernels_;
  double products_;  // per ns
  Workers workers_;
  PagedKvOperand operand_;
  MaskRanges mask_;
  std::vector<SequenceSpan> sequences_;
  std::int64_t kept_;  // of a row's keys: top_k, or as many as there are
  std::vector<IndexerPiece> pieces_;
  std::vector<IndexerMerge> merges_;
  std::int64_t num_lists_ = 0;
  std::int64_t kernel_bytes_ = 0;
  std::int64_t list_bytes_ = 0;  // of a token's TopK
  ScoredKey* lists_ = nullptr;   // [num_lists, kept]
  mutable std::vector<std::int64_t> list_sizes_;
};

}  // namespace

void mla_indexer(const MlaIndexerArgs& args, const Context& context, Target target) {
  IndexerRun(args, context, target).run();
}

}  // namespace quire::cpu
