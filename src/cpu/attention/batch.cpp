// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention/batch.h"

#include <algorithm>
#include <limits>

#include "cpu/runtime/scratch.h"
#include "cpu/runtime/work_estimate.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kJoinRows = 16;

std::byte* row_address(const TensorView& tensor, std::int64_t token, std::int64_t head) {
  const std::int64_t offset = token * tensor.strides[0] + head * tensor.strides[1];
  return tensor.as<std::byte>() + bytes_for(tensor.dtype, offset);
}

float* lse_address(const TensorView& lse, std::int64_t token, std::int64_t head) {
  return lse.as<float>() + token * lse.strides[0] + head * lse.strides[1];
}

float per_head(const std::optional<TensorView>& tensor, std::int64_t head, float absent) {
  return tensor ? tensor->as<const float>()[tensor->offset({head})] : absent;
}

WorkShape work_shape(const AttentionBatch& batch, const AttentionEngine& engine, Target target) {
  const std::int64_t heads = batch.q.shape[1];
  const std::int64_t kv_heads = batch.up ? heads : batch.keys.heads().count;
  const double products = products_per_nanosecond(target, batch.q.dtype);
  WorkShape shape{.kv_heads = kv_heads,
                  .group = heads / kv_heads,
                  .key_width = batch.q.shape[2],
                  .value_width = batch.out.shape[2],
                  .heads_are_apart = batch.heads_are_apart,
                  .most_streamed_rows = engine.most_streamed_rows};
  std::int64_t bytes = batch.keys.layout().format.row_bytes;
  if (batch.values) bytes += batch.values->layout().format.row_bytes;
  shape.key_nanoseconds = nanoseconds_of_bytes(static_cast<double>(bytes));
  shape.product_nanoseconds = static_cast<double>(shape.key_width + shape.value_width) / products;
  if (batch.up) {
    // The up-projection is done again for every block of tokens: longer ones pay.
    shape.state_bytes = 1 << 20;
    shape.one_head_at_a_time = true;
    const std::int64_t projected = (batch.up->nope + batch.up->value) * batch.up->latent;
    shape.key_nanoseconds += static_cast<double>(projected) / products;
  }
  return shape;
}

}  // namespace

BatchAttention::BatchAttention(const AttentionBatch& batch, const Workers& workers, Target target)
    : batch_(batch),
      engine_(attention_engine(target, batch.q.dtype)),
      operands_(batch.keys, batch.values),
      mask_(batch.mask),
      sequences_(sequence_spans(batch.row_offsets, batch.keys)),
      shape_(work_shape(batch, engine_, target)),
      list_(make_work_list(sequences_, mask_, shape_, workers)),
      workers_(workers.for_nanoseconds(list_.nanoseconds)
                   .at_most(static_cast<std::int64_t>(list_.pieces.size()))) {
  measure_workers();
}

void BatchAttention::measure_workers() {
  std::int64_t most_rows = 0;
  std::int64_t most_bytes = 0;
  for (const WorkPiece& piece : list_.pieces) {
    most_rows = std::max(most_rows, piece.num_heads * piece.num_rows);
    const AttentionShape shape{.chunk = piece.chunk,
                               .packed = piece.packed,
                               .num_heads = piece.num_heads,
                               .rows_per_head = piece.num_rows,
                               .key_width = shape_.key_width,
                               .value_width = shape_.value_width,
                               .is_streamed = piece.is_streamed};
    const std::int64_t bytes = batch_.up ? engine_.projected_scratch_bytes(shape, *batch_.up)
                                         : engine_.scratch_bytes(shape);
    most_bytes = std::max(most_bytes, bytes);
  }
  row_bytes_ = round_up_to_line(most_rows * static_cast<std::int64_t>(sizeof(QueryRow)));
  worker_bytes_ = row_bytes_ + round_up_to_line(most_bytes);
}

std::int64_t BatchAttention::scratch_bytes() const {
  const std::int64_t state_bytes = list_.state_rows * (8 + (shape_.value_width + 1) * 4);
  return worker_bytes_ * workers_.count + round_up_to_line(state_bytes);
}

void BatchAttention::run(std::byte* scratch) {
  auto* maxima = reinterpret_cast<double*>(scratch + worker_bytes_ * workers_.count);
  auto* outs = reinterpret_cast<float*>(maxima + list_.state_rows);
  states_ = {.out = outs, .maximum = maxima, .sum = outs + list_.state_rows * shape_.value_width};
  parallel_for(static_cast<std::int64_t>(list_.pieces.size()), workers_,
               [&](std::int64_t piece, int worker) {
                 attend(list_.pieces[static_cast<std::size_t>(piece)],
                        scratch + worker * worker_bytes_);
               });
  join_all(scratch);
}

// kJoinRows rows at a time: a latent cache has one KV head for all of them.
void BatchAttention::join_all(std::byte* scratch) const {
  struct Part {
    const WorkMerge* merge;
    std::int64_t head;
    std::int64_t first_row;
  };
  std::vector<Part> parts;
  for (const WorkMerge& merge : list_.merges) {
    const std::int64_t rows =
        sequences_[static_cast<std::size_t>(merge.sequence)].num_tokens * shape_.group;
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      for (std::int64_t row = 0; row < rows; row += kJoinRows) parts.push_back({&merge, head, row});
    }
  }
  const std::int64_t bytes = list_.state_rows * (shape_.value_width + 2) * 4;
  const Workers workers =
      workers_.for_nanoseconds(nanoseconds_of_bytes(static_cast<double>(bytes)));
  parallel_for(static_cast<std::int64_t>(parts.size()), workers,
               [&](std::int64_t index, int worker) {
                 const Part& part = parts[static_cast<std::size_t>(index)];
                 join(*part.merge, part.head, part.first_row, scratch + worker * worker_bytes_);
               });
}

// rows [num_heads, num_rows]
void BatchAttention::fill_rows(const WorkPiece& piece, QueryRow* rows) const {
  const SequenceSpan& sequence = sequences_[static_cast<std::size_t>(piece.sequence)];
  for (std::int64_t h = 0; h < piece.num_heads; ++h) {
    for (std::int64_t r = 0; r < piece.num_rows; ++r) {
      const std::int64_t token = (piece.first_row + r) / shape_.group;
      const std::int64_t head =
          (piece.first_head + h) * shape_.group + (piece.first_row + r) % shape_.group;
      const float slope = per_head(batch_.slopes, head, 0.0f);
      QueryRow& row = rows[h * piece.num_rows + r];
      row = query_row(sequence, piece.first_token + token, head);
      row.slope_base = slope > 0.0f ? row.end - 1 : row.begin;
      row.slope = slope;
      row.sink = per_head(batch_.sinks, head, -std::numeric_limits<float>::infinity());
    }
  }
}

QueryRow BatchAttention::query_row(const SequenceSpan& sequence, std::int64_t local,
                                   std::int64_t head) const {
  const std::int64_t token = sequence.first_token + local;
  const std::int64_t position = sequence.cache_length + local;
  const KeyRange seen = mask_.range(token, position, sequence.num_keys());
  return {.q = row_address(batch_.q, token, head),
          .out = row_address(batch_.out, token, head),
          .lse = batch_.lse ? lse_address(*batch_.lse, token, head) : nullptr,
          .token = token,
          .position = position,
          .begin = seen.begin,
          .end = seen.end,
          .slope_base = 0,
          .slope = 0.0f,
          .sink = 0.0f};
}

RowStates BatchAttention::states_from(std::int64_t row) const {
  return {.out = states_.out + row * shape_.value_width,
          .maximum = states_.maximum + row,
          .sum = states_.sum + row};
}

UpProjection BatchAttention::up_projection(std::int64_t head) const {
  UpProjection up = *batch_.up;
  up.first_row = head * batch_.projection_rows;
  up.weight += bytes_for(up.weight_dtype, up.first_row * up.column_stride);
  return up;
}

void BatchAttention::attend(const WorkPiece& piece, std::byte* scratch) const {
  auto* rows = reinterpret_cast<QueryRow*>(scratch);
  fill_rows(piece, rows);
  const SequenceSpan& sequence = sequences_[static_cast<std::size_t>(piece.sequence)];
  const MaskRanges::State mask_state{.ranges = &mask_, .cache_length = sequence.cache_length};
  const AttentionItem item{
      .rows = rows,
      .chunk = piece.chunk,
      .packed = piece.packed,
      .num_heads = piece.num_heads,
      .first_head = batch_.up ? 0 : piece.first_head,  // latents have one head
      .rows_per_head = piece.num_rows,
      .key_width = batch_.q.shape[2],
      .value_width = shape_.value_width,
      .first_key = piece.keys.begin,
      .last_key = piece.keys.end,
      .source = operands_.source(piece.sequence),
      .mask = mask_.is_exact() ? nullptr : MaskRanges::fill_visible,
      .mask_state = &mask_state,
      .score = batch_.score,
      .q_dtype = batch_.q.dtype,
      .out_dtype = batch_.out.dtype,
      .states = piece.state_row < 0 ? RowStates{} : states_from(piece.state_row),
      .is_streamed = piece.is_streamed};
  if (batch_.up) {
    const UpProjection up = up_projection(piece.first_head);
    engine_.attend_projected(item, up, scratch + row_bytes_);
  } else {
    engine_.attend(item, scratch + row_bytes_);
  }
}

void BatchAttention::join(const WorkMerge& merge, std::int64_t head, std::int64_t first_row,
                          std::byte* scratch) const {
  const SequenceSpan& sequence = sequences_[static_cast<std::size_t>(merge.sequence)];
  const std::int64_t head_rows = sequence.num_tokens * shape_.group;
  const WorkPiece piece{.sequence = merge.sequence,
                        .chunk = 0,
                        .packed = 0,
                        .first_token = 0,
                        .num_tokens = sequence.num_tokens,
                        .first_head = head,
                        .num_heads = 1,
                        .first_row = first_row,
                        .num_rows = std::min(kJoinRows, head_rows - first_row),
                        .keys = {},
                        .state_row = merge.state_row + head * head_rows + first_row,
                        .is_streamed = false};
  auto* rows = reinterpret_cast<QueryRow*>(scratch);
  fill_rows(piece, rows);
  engine_.merge({.rows = rows,
                 .num_rows = piece.num_rows,
                 .value_width = shape_.value_width,
                 .states = states_from(piece.state_row),
                 .split_rows = shape_.kv_heads * head_rows,
                 .num_splits = merge.num_splits,
                 .out_dtype = batch_.out.dtype},
                scratch + row_bytes_);
}

}  // namespace quire::cpu
