// SPDX-License-Identifier: Apache-2.0
// Up to 16 query rows per KV head in f32: K and V rows (f32, bf16, f16, e4m3) are multiplied as they come
// from memory, in the order of cpu/attention/key_streams.h, one vector of columns at a time.
#pragma once

#include "cpu/attention/item_states.h"
#include "cpu/attention/key_streams.h"
#include "cpu/attention/score_weights.h"
#include "cpu/attention/vector_products.h"
#include "cpu/simd/tile_f32.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Rows that are converted where they are multiplied, once for every kRowsAtOnce queries: cheap for bf16 and i8, and for
// f16 where there is an instruction. e4m3 twice is cheaper than decoding it first, four times is not: measured on Cascade
// Lake; on Neoverse N1 once costs as much as decoding.
constexpr TakenRows taken_rows(std::int64_t queries) {
#if defined(__F16C__)
  constexpr bool kWidensHalves = true;
#else
  constexpr bool kWidensHalves = false;
#endif
#if defined(__x86_64__)
  constexpr std::int64_t kE4m3Queries = 2 * kRowsAtOnce;
#else
  constexpr std::int64_t kE4m3Queries = kRowsAtOnce;
#endif
  return {.bf16 = true,
          .f16 = kWidensHalves,
          .e4m3 = queries <= kE4m3Queries,
          .i8 = true,
          .scaled = true};
}

struct RowStreamSpace {
  RowStreamSpace(const AttentionShape& shape, Carver& carver)
      : row_step(round_up_to(shape.rows_per_head, kRowsAtOnce)),
        rows(without_panels(shape), carver),
        streams(shape, carver) {
    queries = carver.take<float>(shape.num_heads * row_step * shape.key_width);
    scores = carver.take<float>(shape.num_heads * row_step * rows.score_stride);
    outs = carver.take<float>(kRowsAtOnce * rows.out_stride);
    sums = carver.take<float>(kRowsAtOnce * shape.value_width);
    rows.present = streams.present();
  }

  std::int64_t row_step;  // rows of a head, padded
  Workspace<F32Engine> rows;
  KeyStreams<float> streams;
  float* queries;  // [heads][row_step, key_width]
  float* scores;   // [heads][row_step, score_stride]
  float* outs;     // of rows that are padding
  float* sums;     // [kRowsAtOnce, value_width], of a few keys

 private:
  static AttentionShape without_panels(AttentionShape shape) {
    shape.chunk = kStreamChunk;
    shape.packed = 0;
    return shape;
  }
};

class StreamedRows {
 public:
  StreamedRows(const AttentionItem& item, RowStreamSpace& space)
      : item_(item), space_(space), weigher_(item, space.rows) {}

  void run() {
    begin();
    std::int64_t first = item_.first_key / kStreamChunk * kStreamChunk;
    for (; first < item_.last_key; first += kStreamChunk) attend_chunk(first);
    end_rows(item_, space_.rows);
  }

 private:
  void begin() {
    space_.streams.begin(item_, taken_rows(space_.row_step));
    clear_states(item_, space_.rows);
    for (std::int64_t head = 0; head < item_.num_heads; ++head) {
      for (std::int64_t r = 0; r < item_.rows_per_head; ++r) {
        float* query = queries(head) + r * item_.key_width;
        const float* found = as_elements(
            item_.q_dtype, item_.rows[head * item_.rows_per_head + r].q, item_.key_width, query);
        for (std::int64_t i = 0; i < item_.key_width; ++i) query[i] = found[i];
      }
      zero(queries(head) + item_.rows_per_head * item_.key_width,
           (space_.row_step - item_.rows_per_head) * item_.key_width);
      zero(out_rows(head), item_.rows_per_head * space_.rows.out_stride);
    }
    zero(space_.scores, item_.num_heads * space_.row_step * space_.rows.score_stride);
    zero(space_.outs, kRowsAtOnce * space_.rows.out_stride);
  }

  void attend_chunk(std::int64_t first) {
    const KeyChunk chunk{.first = first, .column = 0, .depth = kStreamChunk};
    // Heads differ in no mask: if this one sees nothing, none does.
    const int count = static_cast<int>(item_.rows_per_head);
    const ScoreSpan seen = ScoreRows(item_, 0, 0, count, first, kStreamChunk).hull;
    if (seen.is_empty()) return;
    constexpr int kColumns = kKeysAtOnce * kStreamSteps;
    used_ = {.begin = seen.begin / kColumns * kColumns,
             .end = (seen.end + kColumns - 1) / kColumns * kColumns};
    space_.streams.locate(first);
    for (int step = 0; step < kStreamSteps; ++step) {
      for (std::int64_t head = 0; head < item_.num_heads; ++head) score(head, step);
    }
    for (std::int64_t head = 0; head < item_.num_heads; ++head) weigh(head, chunk);
    for (int step = 0; step < kStreamSteps; ++step) {
      for (std::int64_t head = 0; head < item_.num_heads; ++head) add_values(head, step);
    }
  }

  void score(std::int64_t head, int step) {
    const StreamRows rows = space_.streams.key_rows(head, step);
    on_taken(rows.dtype, [&](auto type) { score<decltype(type)::kValue>(rows, head, step); });
  }
  template <DType kStored> void score(const StreamRows& rows, std::int64_t head, int step) {
    for (std::int64_t r = 0; r < space_.row_step; r += kRowsAtOnce) {
      const float* queries_of = queries(head) + r * item_.key_width;
      float* scores = scores_of(head) + r * space_.rows.score_stride + step;
      for (int s = first_stream(); s < last_stream(); s += kKeysAtOnce) {
        const std::byte* keys[kKeysAtOnce];
        for (int i = 0; i < kKeysAtOnce; ++i) keys[i] = rows.row<std::byte>(s + i);
        for (int i = kKeysAtOnce; r == 0 && i < 2 * kKeysAtOnce && s + i < last_stream(); ++i) {
          prefetch_row(rows.row<std::byte>(s + i), item_.key_width * kElementBytes<kStored>);
        }
        dot_products<kStored>(queries_of, item_.key_width, keys, rows.factors + s,
                              scores + s * kStreamSteps, space_.rows.score_stride, kStreamSteps);
      }
    }
  }

  void weigh(std::int64_t head, const KeyChunk& chunk) {
    space_.streams.prefetch_values(head);
    const int count = static_cast<int>(item_.rows_per_head);
    const ScoreRows rows(item_, head, 0, count, chunk.first, kStreamChunk);
    alignas(64) float decay[ScoreRows::kMost + kF32Lanes];
    weigher_.weigh(rows, chunk, space_.streams.has_holes(), used_, scores_of(head), decay);
    bool& is_started = space_.rows.has_started(head, 0);
    for (int r = 0; r < count && is_started; ++r) {
      if (decay[r] == 1.0f) continue;
      scale_values(out_rows(head) + r * space_.rows.out_stride, item_.value_width, decay[r]);
    }
    is_started = true;
  }

  void add_values(std::int64_t head, int step) {
    const StreamRows rows = space_.streams.value_rows(head, step);
    on_taken(rows.dtype, [&](auto type) { add_values<decltype(type)::kValue>(rows, head, step); });
  }
  template <DType kStored> void add_values(const StreamRows& rows, std::int64_t head, int step) {
    const std::byte* values[kStreams];
    const int streams = last_stream() - first_stream();
    for (int s = 0; s < streams; ++s) values[s] = rows.row<std::byte>(first_stream() + s);
    for (std::int64_t r = 0; r < space_.row_step; r += kRowsAtOnce) {
      const float* weights = scores_of(head) + r * space_.rows.score_stride + used_.begin + step;
      float* outs[kRowsAtOnce];
      for (int i = 0; i < kRowsAtOnce; ++i) {
        const bool exists = r + i < item_.rows_per_head;
        outs[i] = exists ? out_rows(head) + (r + i) * space_.rows.out_stride
                         : space_.outs + i * space_.rows.out_stride;
      }
      const ValueRows found{
          .rows = values, .factors = rows.factors + first_stream(), .count = streams};
      add_weighted<kStored>(weights, space_.rows.score_stride, kStreamSteps, found,
                            item_.value_width, space_.sums, outs);
    }
  }

  // function(TypeTag) of what begin() took.
  template <typename Function> static void on_taken(DType dtype, const Function& function) {
    if (dtype == DType::bf16) return function(TypeTag<DType::bf16>{});
    if (dtype == DType::f16) return function(TypeTag<DType::f16>{});
    if (dtype == DType::fp8_e4m3) return function(TypeTag<DType::fp8_e4m3>{});
    if (dtype == DType::i8) return function(TypeTag<DType::i8>{});
    function(TypeTag<DType::f32>{});
  }

  int first_stream() const { return used_.begin / kStreamSteps; }
  int last_stream() const { return used_.end / kStreamSteps; }
  static void zero(float* values, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) values[i] = 0.0f;
  }
  float* queries(std::int64_t head) const {
    return space_.queries + head * space_.row_step * item_.key_width;
  }
  float* scores_of(std::int64_t head) const {
    return space_.scores + head * space_.row_step * space_.rows.score_stride;
  }
  float* out_rows(std::int64_t head) const {
    return space_.rows.outs + space_.rows.state(head, 0) * space_.rows.out_stride;
  }

  const AttentionItem& item_;
  RowStreamSpace& space_;
  ScoreWeigher<F32Engine> weigher_;
  // Columns of the chunk that some row sees, in whole runs of kKeysAtOnce streams: no others are multiplied, which a
  // sequence's last chunk, or its only one, has few of.
  ScoreSpan used_{};
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
