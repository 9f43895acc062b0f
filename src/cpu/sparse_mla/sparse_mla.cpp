// SPDX-License-Identifier: Apache-2.0
// Every token has keys of its own, so an item is one token and as many of its heads as its states
// leave room for. With an extra stream, each stream leaves states and the two are merged.
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

constexpr std::int64_t kCacheLine = 64;
constexpr std::int64_t kChunk = 128;
constexpr std::int64_t kHeadStep = 16;    // rows that every engine's tile takes at once
constexpr std::int64_t kMostHeads = 256;  // states of 512 columns: half a megabyte

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
    const std::int64_t tokens = args_.q.shape[0];
    if (tokens == 0) return;
    workers_ = workers_.for_nanoseconds(nanoseconds());
    choose_heads();
    const std::int64_t parts = (args_.q.shape[1] + heads_ - 1) / heads_;
    const std::int64_t num_items = tokens * parts;
    const Workers workers = workers_.at_most(num_items);
    std::byte* scratch = thread_scratch(worker_bytes_ * workers.count);
    parallel_for(num_items, workers, [&](std::int64_t item, int worker) {
      attend(item / parts, item % parts * heads_, scratch + worker * worker_bytes_);
    });
  }

 private:
  // Of the call on one thread, were all slots taken.
  double nanoseconds() const {
    const std::int64_t slots =
        args_.indices.shape[1] + (extra_ ? args_.extra->indices.shape[1] : 0);
    const std::int64_t products = args_.q.shape[1] * (args_.q.shape[2] + latent());
    const auto row_bytes = static_cast<double>(args_.cache.format().row_bytes);
    return static_cast<double>(args_.q.shape[0] * slots) *
           (nanoseconds_of_bytes(row_bytes) + static_cast<double>(products) / products_);
  }

  // Heads per item. Fewer where tokens alone would not occupy the threads: heads never meet, so
  // this changes no result.
  void choose_heads() {
    const std::int64_t heads = args_.q.shape[1];
    const std::int64_t parts = std::max<std::int64_t>(1, 2 * workers_.count / args_.q.shape[0]);
    heads_ = std::min(kMostHeads, round_up_to((heads + parts - 1) / parts, kHeadStep));
    heads_ = std::min(heads_, heads);
    row_bytes_ = round_up_to(heads_ * static_cast<std::int64_t>(sizeof(QueryRow)), kCacheLine);
    state_bytes_ = extra_ ? round_up_to(2 * heads_ * (8 + (latent() + 1) * 4), kCacheLine) : 0;
    const std::int64_t kernel_bytes = engine_.scratch_bytes({.chunk = kChunk,
                                                             .packed = kChunk,
                                                             .num_heads = 1,
                                                             .rows_per_head = heads_,
                                                             .key_width = args_.q.shape[2],
                                                             .value_width = latent(),
                                                             .is_streamed = is_streamed()});
    worker_bytes_ = row_bytes_ + state_bytes_ + round_up_to(kernel_bytes, kCacheLine);
  }

  std::int64_t latent() const { return args_.out.shape[2]; }
  ScoreRule score() const { return {.scale = args_.scale, .softcap = 0.0f}; }
  // By all heads of a token, not by those of an item: that depends on the threads.
  bool is_streamed() const { return args_.q.shape[1] <= engine_.most_streamed_rows; }

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

  AttentionItem item_of(const Stream& stream, std::int64_t token, const QueryRow* rows,
                        std::int64_t num_rows, const RowStates& states) const {
    return {.rows = rows,
            .chunk = kChunk,
            .packed = kChunk,
            .num_heads = 1,
            .first_head = 0,
            .rows_per_head = num_rows,
            .key_width = args_.q.shape[2],
            .value_width = latent(),
            .first_key = 0,
            .last_key = stream.num_slots(token),
            .source = stream.source(token),
            .mask = nullptr,
            .mask_state = nullptr,
            .score = score(),
            .q_dtype = args_.q.dtype,
            .out_dtype = args_.out.dtype,
            .states = states,
            .is_streamed = is_streamed()};
  }

  void attend(std::int64_t token, std::int64_t first_head, std::byte* scratch) const {
    auto* rows = reinterpret_cast<QueryRow*>(scratch);
    const std::int64_t count = std::min(heads_, args_.q.shape[1] - first_head);
    for (std::int64_t h = 0; h < count; ++h) rows[h] = query_row(token, first_head + h);
    std::byte* rest = scratch + row_bytes_ + state_bytes_;
    if (!extra_) {
      engine_.attend(item_of(main_, token, rows, count, {}), rest);
      return;
    }
    auto* maxima = reinterpret_cast<double*>(scratch + row_bytes_);
    auto* outs = reinterpret_cast<float*>(maxima + 2 * count);
    const RowStates both{.out = outs, .maximum = maxima, .sum = outs + 2 * count * latent()};
    engine_.attend(item_of(main_, token, rows, count, both), rest);
    engine_.attend(item_of(*extra_, token, rows, count,
                           {.out = both.out + count * latent(),
                            .maximum = both.maximum + count,
                            .sum = both.sum + count}),
                   rest);
    engine_.merge({.rows = rows,
                   .num_rows = count,
                   .value_width = latent(),
                   .states = both,
                   .split_rows = count,
                   .num_splits = 2,
                   .out_dtype = args_.out.dtype},
                  rest);
  }

  const SparseMlaArgs& args_;
  const AttentionEngine& engine_;
  double products_;  // per ns
  Workers workers_;
  Stream main_;
  std::optional<Stream> extra_;
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
