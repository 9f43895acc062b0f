// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention/work_list.h"

#include <algorithm>

namespace quire::cpu {
namespace {

constexpr std::int64_t kFewTokens = 16;
constexpr std::int64_t kLongestSplit = 1024;
constexpr std::int64_t kMinRows = 16;     // what a head takes at least, padding included
constexpr std::int64_t kFewestRows = 32;  // of a head that is cut for the threads' sake

// Rows of many tokens hide the packing of longer chunks; wide rows and several heads would push the
// panels out of the L2 cache.
constexpr std::int64_t kLongChunk = 256;
constexpr std::int64_t kShortChunk = 128;
constexpr std::int64_t kWideRow = 256;
constexpr std::int64_t kPackedBytes = 512 << 10;
constexpr std::int64_t kPanelBytes = 512 << 10;  // of the chunk's K and V, all heads

std::int64_t max_rows(const WorkShape& shape) {
  return std::max(kMinRows, shape.state_bytes / (4 * shape.value_width));
}

// What the tokens [first, first + count) of a sequence may see together.
KeyRange hull(const SequenceSpan& sequence, const MaskRanges& mask, std::int64_t first,
              std::int64_t count) {
  KeyRange all{};
  for (std::int64_t token = first; token < first + count; ++token) {
    const KeyRange own = mask.range(sequence.first_token + token, sequence.cache_length + token,
                                    sequence.num_keys());
    if (own.is_empty()) continue;
    if (all.is_empty()) all = own;
    all = {std::min(all.begin, own.begin), std::max(all.end, own.end)};
  }
  return all;
}

// K and V of one head that are packed at a time: half of a large L2, in whole long chunks.
std::int64_t packed_keys(const WorkShape& shape) {
  const std::int64_t key_bytes = 2 * (shape.key_width + shape.value_width);
  return std::max<std::int64_t>(1, kPackedBytes / key_bytes / kLongChunk) * kLongChunk;
}

// Keys between the absolute places where a sequence with few tokens is cut: as few as the states
// allow, which are written and read once more. Where K and V are projected up, that is done again
// for every cut.
std::int64_t split_keys(const SequenceSpan& sequence, const WorkShape& shape) {
  if (shape.one_head_at_a_time) return kLongestSplit;
  constexpr std::int64_t kKeysPerState = 8;  // bytes for bytes
  const std::int64_t state_bytes = sequence.num_tokens * shape.group * shape.value_width * 4;
  std::int64_t keys = kShortestSplit;
  while (keys < kLongestSplit && keys * shape.key_width * 2 < kKeysPerState * state_bytes) {
    keys *= 2;
  }
  return keys;
}

std::int64_t num_splits(const KeyRange& keys, std::int64_t split_keys) {
  if (keys.is_empty()) return 1;
  return (keys.end - 1) / split_keys - keys.begin / split_keys + 1;
}

double nanoseconds_of(const std::vector<WorkPiece>& pieces, const WorkShape& shape) {
  double sum = 0.0;
  for (const WorkPiece& piece : pieces) {
    const auto keys = static_cast<double>((piece.keys.end - piece.keys.begin) * piece.num_heads);
    sum += keys * (shape.key_nanoseconds +
                   static_cast<double>(piece.num_rows) * shape.product_nanoseconds);
  }
  return sum;
}

class Cutter {
 public:
  Cutter(const std::vector<SequenceSpan>& sequences, const MaskRanges& mask, const WorkShape& shape)
      : sequences_(sequences), mask_(mask), shape_(shape) {}

  // heads_per_piece, and rows of one head if that is one: of the sequences with few tokens.
  WorkList cut(std::int64_t heads_per_piece, std::int64_t rows_per_piece) {
    WorkList list;
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      if (sequences_[s].num_tokens == 0) continue;
      const auto sequence = static_cast<std::int64_t>(s);
      if (sequences_[s].num_tokens <= kFewTokens) {
        cut_keys(sequence, heads_per_piece, rows_per_piece, list);
      } else {
        cut_tokens(sequence, list);
      }
    }
    return list;
  }

  std::int64_t most_heads() const {
    if (shape_.one_head_at_a_time || shape_.heads_are_apart) return 1;
    const std::int64_t by_states = max_rows(shape_) / std::max(kMinRows, shape_.group);
    const std::int64_t head_bytes = kShortChunk * (shape_.key_width + shape_.value_width) * 2;
    return std::clamp<std::int64_t>(std::min(by_states, kPanelBytes / head_bytes), 1,
                                    shape_.kv_heads);
  }

  // Of a head, in one sequence with few tokens.
  std::int64_t most_rows() const {
    std::int64_t tokens = 1;
    for (const SequenceSpan& span : sequences_) {
      if (span.num_tokens <= kFewTokens) tokens = std::max(tokens, span.num_tokens);
    }
    return tokens * shape_.group;
  }

 private:
  void cut_tokens(std::int64_t sequence, WorkList& list) const {
    const SequenceSpan& span = sequences_[static_cast<std::size_t>(sequence)];
    const std::int64_t step = std::max<std::int64_t>(1, max_rows(shape_) / shape_.group);
    for (std::int64_t first = 0; first < span.num_tokens; first += step) {
      const std::int64_t count = std::min(step, span.num_tokens - first);
      const KeyRange keys = hull(span, mask_, first, count);
      for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
        list.pieces.push_back({.sequence = sequence,
                               .chunk = shape_.key_width > kWideRow ? kShortChunk : kLongChunk,
                               .packed = packed_keys(shape_),
                               .first_token = first,
                               .num_tokens = count,
                               .first_head = head,
                               .num_heads = 1,
                               .first_row = 0,
                               .num_rows = count * shape_.group,
                               .keys = keys,
                               .state_row = -1,
                               .is_streamed = false});
      }
    }
  }

  void cut_keys(std::int64_t sequence, std::int64_t heads_per_piece, std::int64_t rows_per_piece,
                WorkList& list) const {
    const SequenceSpan& span = sequences_[static_cast<std::size_t>(sequence)];
    const KeyRange keys = hull(span, mask_, 0, span.num_tokens);
    const std::int64_t step = split_keys(span, shape_);
    const std::int64_t splits = num_splits(keys, step);
    const std::int64_t head_rows = span.num_tokens * shape_.group;
    const std::int64_t base = splits == 1 ? -1 : list.state_rows;
    const std::int64_t first_split = keys.begin / step;
    for (std::int64_t split = 0; split < splits; ++split) {
      const std::int64_t begin = (first_split + split) * step;
      const KeyRange own{std::max(begin, keys.begin), std::min(begin + step, keys.end)};
      for (std::int64_t head = 0; head < shape_.kv_heads; head += heads_per_piece) {
        for (std::int64_t first = 0; first < head_rows; first += rows_per_piece) {
          const std::int64_t row = (split * shape_.kv_heads + head) * head_rows + first;
          list.pieces.push_back({.sequence = sequence,
                                 .chunk = kShortChunk,
                                 .packed = kShortChunk,
                                 .first_token = 0,
                                 .num_tokens = span.num_tokens,
                                 .first_head = head,
                                 .num_heads = std::min(heads_per_piece, shape_.kv_heads - head),
                                 .first_row = first,
                                 .num_rows = std::min(rows_per_piece, head_rows - first),
                                 .keys = own,
                                 .state_row = splits == 1 ? -1 : base + row,
                                 .is_streamed = head_rows <= shape_.most_streamed_rows});
        }
      }
    }
    if (splits == 1) return;
    list.merges.push_back({.sequence = sequence, .num_splits = splits, .state_row = base});
    list.state_rows += splits * shape_.kv_heads * head_rows;
  }

  const std::vector<SequenceSpan>& sequences_;
  const MaskRanges& mask_;
  const WorkShape& shape_;
};

}  // namespace

std::vector<SequenceSpan> sequence_spans(const TensorView& row_offsets, const PagedKVCache& cache) {
  const auto* offsets = row_offsets.as<const std::uint32_t>();
  std::vector<SequenceSpan> spans;
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    const std::int64_t first = offsets[row_offsets.offset({sequence})];
    const std::int64_t last = offsets[row_offsets.offset({sequence + 1})];
    spans.push_back({.first_token = first,
                     .num_tokens = last - first,
                     .cache_length = cache.cache_length(sequence)});
  }
  return spans;
}

std::vector<SequenceSpan> sequence_spans(const TensorView& row_offsets, const KvOperandRef& keys) {
  const auto* offsets = row_offsets.as<const std::uint32_t>();
  std::vector<SequenceSpan> spans;
  for (std::int64_t sequence = 0; sequence + 1 < row_offsets.shape[0]; ++sequence) {
    const std::int64_t first = offsets[row_offsets.offset({sequence})];
    const std::int64_t count = offsets[row_offsets.offset({sequence + 1})] - first;
    spans.push_back({.first_token = first,
                     .num_tokens = count,
                     .cache_length = keys.first_position(sequence, count),
                     .given_keys = keys.num_keys(sequence, count)});
  }
  return spans;
}

WorkList make_work_list(const std::vector<SequenceSpan>& sequences, const MaskRanges& mask,
                        const WorkShape& shape, const Workers& workers) {
  Cutter cutter(sequences, mask, shape);
  std::int64_t heads = cutter.most_heads();
  std::int64_t rows = cutter.most_rows();
  WorkList list = cutter.cut(heads, rows);
  const double nanoseconds = nanoseconds_of(list.pieces, shape);
  const int num_threads = workers.for_nanoseconds(nanoseconds).count;
  const auto is_short_of = [&list](std::int64_t pieces) {
    return static_cast<std::int64_t>(list.pieces.size()) < pieces;
  };
  while (heads > 1 && is_short_of(2 * num_threads)) {
    heads = (heads + 1) / 2;
    list = cutter.cut(heads, rows);
  }
  // Each part of a head packs the same keys once more: only for threads that would have nothing.
  while (heads == 1 && rows > kFewestRows && !shape.one_head_at_a_time &&
         is_short_of(num_threads)) {
    rows /= 2;
    list = cutter.cut(heads, std::max(rows, kFewestRows));
  }
  const auto cost = [](const WorkPiece& piece) {
    return (piece.keys.end - piece.keys.begin) * piece.num_rows * piece.num_heads;
  };
  std::ranges::stable_sort(list.pieces, [&cost](const WorkPiece& left, const WorkPiece& right) {
    return cost(left) > cost(right);
  });
  list.nanoseconds = nanoseconds;
  return list;
}

}  // namespace quire::cpu
