// SPDX-License-Identifier: Apache-2.0
// Every token has keys of its own, so an item is one token and as many of its heads as its states
// leave room for. With an extra stream, each stream leaves states and the two are merged. A sequence
// with few new tokens and few heads would leave threads idle: the slots of its tokens are cut, each
// cut leaves states, and a second pass merges them. What is cut depends on the sequence alone.
#include "cpu/sparse_mla/sparse_mla.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "cpu/attention/kernels.h"
#include "cpu/attention/key_operands.h"
#include "cpu/attention/work_list.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/work_estimate.h"
#include "quire/gathered_operand.h"
#include "quire/paged_kv_operand.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kChunk = 128;
constexpr std::int64_t kHeadStep = 16;    // rows that every engine's tile takes at once
constexpr std::int64_t kMostHeads = 256;  // states of 512 columns: half a megabyte

// Slots are cut for at most so many new tokens and heads; more of either are items enough, and the
// states of more heads would cost a few percent.
constexpr std::int64_t kFewTokens = 16;
constexpr std::int64_t kFewHeads = 32;
constexpr std::int64_t kCutSlots = 512;

std::int64_t round_up_to(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// One cache with the indices into it; the main stream and the extra one look alike.
class Stream {
 public:
  Stream(const PagedKVCache& cache, std::int64_t layer, const TensorView& indices,
         const std::optional<TensorView>& lengths, const TensorView& row_offsets,
         std::int64_t tokens_per_row = 1)
      : sources_(sources_of(row_offsets, cache, indices.shape[0], tokens_per_row)),
        rows_(PagedKvOperand(cache.key(layer)), indices, lengths, sources_.data()),
        operands_(rows_, std::nullopt) {}
  Stream(const Stream&) = delete;  // its operands point into it

  std::int64_t num_slots(std::int64_t token) const { return rows_.num_keys(token, 1); }
  KeySource source(std::int64_t token) const { return operands_.source(token); }

 private:
  static std::vector<GatherSource> sources_of(const TensorView& row_offsets,
                                              const PagedKVCache& cache, std::int64_t tokens,
                                              std::int64_t tokens_per_row) {
    std::vector<GatherSource> sources(static_cast<std::size_t>(tokens));
    const std::vector<SequenceSpan> sequences = sequence_spans(row_offsets, cache);
    for (std::int64_t s = 0; s < std::ssize(sequences); ++s) {
      const SequenceSpan& span = sequences[static_cast<std::size_t>(s)];
      std::fill_n(sources.begin() + span.first_token, span.num_tokens,
                  GatherSource{.sequence = s, .num_keys = span.num_keys() / tokens_per_row});
    }
    return sources;
  }

  std::vector<GatherSource> sources_;
  GatheredOperand<PagedKvOperand> rows_;
  KeyOperands operands_;
};

class SparseRun {
 public:
  SparseRun(const SparseMlaArgs& args, const Context& context, Target target)
      : args_(args),
        engine_(attention_engine(target, args.q.dtype)),
        products_(products_per_nanosecond(target, args.q.dtype)),
        workers_(context),
        main_(args.cache, args.layer, args.indices, args.topk_lengths, args.row_offsets) {
    if (args.extra) {
      extra_.emplace(args.extra->cache, args.extra->layer, args.extra->indices, args.extra->lengths,
                     args.row_offsets, args.extra->tokens_per_row);
    }
  }

  void run() {
    if (args_.q.shape[0] == 0) return;
    workers_ = workers_.for_nanoseconds(nanoseconds());
    make_cuts();
    choose_heads();
    list_items();
    const Workers workers = workers_.at_most(std::ssize(items_));
    std::byte* scratch = thread_scratch(worker_bytes_ * workers.count + cut_state_bytes());
    cut_states_ = states_at(scratch + worker_bytes_ * workers.count, cut_rows());
    parallel_for(std::ssize(items_), workers, [&](std::int64_t item, int worker) {
      attend(items_[static_cast<std::size_t>(item)], scratch + worker * worker_bytes_);
    });
    const std::int64_t parts = num_parts();
    const Workers mergers =
        workers.for_nanoseconds(nanoseconds_of_bytes(static_cast<double>(cut_state_bytes())));
    parallel_for(std::ssize(cut_tokens_) * parts, mergers, [&](std::int64_t part, int worker) {
      merge_cuts(part / parts, part % parts * heads_, scratch + worker * worker_bytes_);
    });
  }

 private:
  // Slots [first, last) of one stream; a token has fewer where its list ends before.
  struct Cut {
    const Stream* stream;
    std::int64_t first;
    std::int64_t last;
  };

  struct Item {
    std::int64_t token;
    std::int64_t first_head;
    std::int64_t
        cut_token;  // its number among those whose slots are cut, and the cut; -1: all slots
    std::int64_t cut;
  };

  // Of the call on one thread, were all slots taken.
  double nanoseconds() const {
    const std::int64_t slots = args_.indices.shape[1] + extra_slots();
    const std::int64_t products = args_.q.shape[1] * (args_.q.shape[2] + latent());
    const auto row_bytes = static_cast<double>(args_.cache.format().row_bytes);
    return static_cast<double>(args_.q.shape[0] * slots) *
           (nanoseconds_of_bytes(row_bytes) + static_cast<double>(products) / products_);
  }

  std::int64_t extra_slots() const { return extra_ ? args_.extra->indices.shape[1] : 0; }

  void make_cuts() {
    const auto cut = [&](const Stream& stream, std::int64_t slots) {
      for (std::int64_t first = 0; first < slots; first += kCutSlots) {
        cuts_.push_back({&stream, first, std::min(first + kCutSlots, slots)});
      }
    };
    if (args_.q.shape[1] > kFewHeads) return;
    cut(main_, args_.indices.shape[1]);
    if (extra_) cut(*extra_, extra_slots());
    if (cuts_.size() < 2) return;
    for (const SequenceSpan& span : sequence_spans(args_.row_offsets, args_.cache)) {
      if (span.num_tokens > kFewTokens) continue;
      for (std::int64_t t = 0; t < span.num_tokens; ++t) {
        cut_tokens_.push_back(span.first_token + t);
      }
    }
  }

  // Heads per item. Fewer where tokens and cuts alone would not occupy the threads: heads never
  // meet, so this changes no result.
  void choose_heads() {
    const std::int64_t heads = args_.q.shape[1];
    const std::int64_t pieces =
        args_.q.shape[0] + std::ssize(cut_tokens_) * (std::ssize(cuts_) - 1);
    const std::int64_t parts = std::max<std::int64_t>(1, 2 * workers_.count / pieces);
    heads_ = std::min(kMostHeads, round_up_to((heads + parts - 1) / parts, kHeadStep));
    heads_ = std::min(heads_, heads);
    row_bytes_ = round_up_to_line(heads_ * static_cast<std::int64_t>(sizeof(QueryRow)));
    state_bytes_ = extra_ ? bytes_of_states(2 * heads_) : 0;
    const std::int64_t kernel_bytes = engine_.scratch_bytes({.chunk = kChunk,
                                                             .packed = kChunk,
                                                             .num_heads = 1,
                                                             .rows_per_head = heads_,
                                                             .key_width = args_.q.shape[2],
                                                             .value_width = latent(),
                                                             .is_streamed = is_streamed()});
    worker_bytes_ = row_bytes_ + state_bytes_ + round_up_to_line(kernel_bytes);
  }

  void list_items() {
    const std::int64_t tokens = args_.q.shape[0];
    std::size_t cut_token = 0;
    for (std::int64_t token = 0; token < tokens; ++token) {
      const bool is_cut = cut_token < cut_tokens_.size() && cut_tokens_[cut_token] == token;
      for (std::int64_t part = 0; part < num_parts(); ++part) {
        if (!is_cut) items_.push_back({token, part * heads_, -1, -1});
        for (std::int64_t cut = 0; is_cut && cut < std::ssize(cuts_); ++cut) {
          items_.push_back({token, part * heads_, static_cast<std::int64_t>(cut_token), cut});
        }
      }
      if (is_cut) ++cut_token;
    }
  }

  std::int64_t num_parts() const { return (args_.q.shape[1] + heads_ - 1) / heads_; }
  std::int64_t heads_of(std::int64_t first) const {
    return std::min(heads_, args_.q.shape[1] - first);
  }
  std::int64_t latent() const { return args_.out.shape[2]; }
  ScoreRule score() const { return {.scale = args_.scale, .softcap = 0.0f}; }
  // By all heads of a token, not by those of an item: that depends on the threads.
  bool is_streamed() const { return args_.q.shape[1] <= engine_.most_streamed_rows; }

  // States [cut tokens, cuts, heads].
  std::int64_t cut_rows() const {
    return std::ssize(cut_tokens_) * std::ssize(cuts_) * args_.q.shape[1];
  }
  std::int64_t cut_state_bytes() const { return bytes_of_states(cut_rows()); }
  std::int64_t bytes_of_states(std::int64_t rows) const {
    return round_up_to_line(rows * (8 + (latent() + 1) * 4));
  }
  RowStates states_at(std::byte* memory, std::int64_t rows) const {
    auto* maxima = reinterpret_cast<double*>(memory);
    auto* outs = reinterpret_cast<float*>(maxima + rows);
    return {.out = outs, .maximum = maxima, .sum = outs + rows * latent()};
  }
  RowStates behind(const RowStates& states, std::int64_t rows) const {
    return {.out = states.out + rows * latent(),
            .maximum = states.maximum + rows,
            .sum = states.sum + rows};
  }
  RowStates states_of(std::int64_t cut_token, std::int64_t cut, std::int64_t head) const {
    return behind(cut_states_, (cut_token * std::ssize(cuts_) + cut) * args_.q.shape[1] + head);
  }

  QueryRow query_row(std::int64_t token, std::int64_t head) const {
    const TensorView& q = args_.q;
    const TensorView& out = args_.out;
    return {.q = q.as<const std::byte>() + bytes_for(q.dtype, q.offset({token, head, 0})),
            .out = out.as<std::byte>() + bytes_for(out.dtype, out.offset({token, head, 0})),
            .lse = args_.lse ? args_.lse->as<float>() + args_.lse->offset({token, head}) : nullptr,
            .token = token,
            .position = 0,
            .begin = 0,
            .end = std::numeric_limits<std::int64_t>::max(),
            .slope_base = 0,
            .slope = 0.0f,
            .sink = args_.sinks ? args_.sinks->as<const float>()[args_.sinks->offset({head})]
                                : -std::numeric_limits<float>::infinity()};
  }

  QueryRow* fill_rows(std::int64_t token, std::int64_t first_head, std::byte* scratch) const {
    auto* rows = reinterpret_cast<QueryRow*>(scratch);
    for (std::int64_t h = 0; h < heads_of(first_head); ++h) {
      rows[h] = query_row(token, first_head + h);
    }
    return rows;
  }

  AttentionItem item_of(const Cut& cut, std::int64_t token, const QueryRow* rows,
                        std::int64_t num_rows, const RowStates& states) const {
    const std::int64_t slots = cut.stream->num_slots(token);
    return {.rows = rows,
            .chunk = kChunk,
            .packed = kChunk,
            .num_heads = 1,
            .first_head = 0,
            .rows_per_head = num_rows,
            .key_width = args_.q.shape[2],
            .value_width = latent(),
            .first_key = std::min(cut.first, slots),
            .last_key = std::min(cut.last, slots),
            .source = cut.stream->source(token),
            .mask = nullptr,
            .mask_state = nullptr,
            .score = score(),
            .q_dtype = args_.q.dtype,
            .out_dtype = args_.out.dtype,
            .states = states,
            .is_streamed = is_streamed()};
  }

  void attend(const Item& item, std::byte* scratch) const {
    const QueryRow* rows = fill_rows(item.token, item.first_head, scratch);
    const std::int64_t count = heads_of(item.first_head);
    std::byte* rest = scratch + row_bytes_ + state_bytes_;
    if (item.cut >= 0) {
      const RowStates states = states_of(item.cut_token, item.cut, item.first_head);
      const Cut& cut = cuts_[static_cast<std::size_t>(item.cut)];
      engine_.attend(item_of(cut, item.token, rows, count, states), rest);
      return;
    }
    const Cut all_main{&main_, 0, std::numeric_limits<std::int64_t>::max()};
    if (!extra_) {
      engine_.attend(item_of(all_main, item.token, rows, count, {}), rest);
      return;
    }
    const Cut all_extra{&*extra_, 0, std::numeric_limits<std::int64_t>::max()};
    const RowStates both = states_at(scratch + row_bytes_, 2 * count);
    engine_.attend(item_of(all_main, item.token, rows, count, both), rest);
    engine_.attend(item_of(all_extra, item.token, rows, count, behind(both, count)), rest);
    merge(rows, count, both, count, 2, rest);
  }

  void merge_cuts(std::int64_t cut_token, std::int64_t first_head, std::byte* scratch) const {
    const std::int64_t token = cut_tokens_[static_cast<std::size_t>(cut_token)];
    const QueryRow* rows = fill_rows(token, first_head, scratch);
    merge(rows, heads_of(first_head), states_of(cut_token, 0, first_head), args_.q.shape[1],
          std::ssize(cuts_), scratch + row_bytes_ + state_bytes_);
  }

  // States of `num_splits` cuts, `split_rows` apart.
  void merge(const QueryRow* rows, std::int64_t num_rows, const RowStates& states,
             std::int64_t split_rows, std::int64_t num_splits, std::byte* scratch) const {
    engine_.merge({.rows = rows,
                   .num_rows = num_rows,
                   .value_width = latent(),
                   .states = states,
                   .split_rows = split_rows,
                   .num_splits = num_splits,
                   .out_dtype = args_.out.dtype},
                  scratch);
  }

  const SparseMlaArgs& args_;
  const AttentionEngine& engine_;
  double products_;  // per ns
  Workers workers_;
  Stream main_;
  std::optional<Stream> extra_;
  std::vector<Cut> cuts_;                 // of a token whose slots are cut
  std::vector<std::int64_t> cut_tokens_;  // ascending
  std::vector<Item> items_;
  RowStates cut_states_{};
  std::int64_t heads_ = 0;
  std::int64_t row_bytes_ = 0;
  std::int64_t state_bytes_ = 0;
  std::int64_t worker_bytes_ = 0;
};

}  // namespace

void sparse_mla(const SparseMlaArgs& args, const Context& context, Target target) {
  SparseRun(args, context, target).run();
}

}  // namespace quire::cpu
