// SPDX-License-Identifier: Apache-2.0
#include "reference/compress_keys.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "quire/paged_kv_operand.h"
#include "reference/mla_rows.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"

namespace quire::reference {
namespace {

struct Sizes {
  std::int64_t width;
  std::int64_t series;
  std::int64_t ratio;
  std::int64_t rope;
};

Sizes sizes_of(const CompressKeysArgs& args) {
  const std::int64_t width = args.gamma.shape[0];
  return {.width = width,
          .series = args.kv.shape[1] / width,
          .ratio = args.bias.shape[0],
          .rope = args.freqs_cis.shape[1]};
}

struct Sequence {
  std::int64_t first_token;  // row of kv
  std::int64_t cached;       // tokens before it
  std::int64_t end;          // one past the last token
  std::int64_t slot;
};

Sequence sequence_of(const CompressKeysArgs& args, std::int64_t b) {
  const std::int64_t cached = args.cache.cache_length(b);
  return {.first_token = args.row_offsets.as<const std::uint32_t>()[b],
          .cached = cached,
          .end = cached + num_new_tokens(args.row_offsets, b),
          .slot = args.state_slots ? args.state_slots->as<const std::uint32_t>()[b] : b};
}

// A token's number of kv (part 0) or gate (part 1): of this call, or of an earlier one.
double number_of(const CompressKeysArgs& args, const Sequence& sequence, std::int64_t token,
                 std::int64_t part, std::int64_t column) {
  if (token < sequence.cached) {
    return args.state.load({sequence.slot, token % args.state.shape[1], part, column});
  }
  const TensorView& tensor = part == 0 ? args.kv : args.gate;
  return tensor.load({sequence.first_token + token - sequence.cached, column});
}

// The softmax of a column's gates times the column's numbers.
double pool(const std::vector<double>& gates, const std::vector<double>& numbers,
            Arithmetic arithmetic, DType dtype) {
  const double largest = *std::max_element(gates.begin(), gates.end());
  double sum = 0.0;
  std::vector<double> weights;
  for (const double gate : gates) {
    weights.push_back(in_register(arithmetic, std::exp(in_register(arithmetic, gate - largest))));
    sum = in_register(arithmetic, sum + weights.back());
  }
  double pooled = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double weight = intermediate(arithmetic, dtype, weights[i] / sum);
    pooled = in_register(arithmetic, pooled + intermediate(arithmetic, dtype, weight * numbers[i]));
  }
  return intermediate(arithmetic, dtype, pooled);
}

std::vector<double> pooled_row(const CompressKeysArgs& args, const Sequence& sequence,
                               std::int64_t entry, Arithmetic arithmetic) {
  const Sizes sizes = sizes_of(args);
  const std::int64_t begin = std::max<std::int64_t>((entry - sizes.series + 1) * sizes.ratio, 0);
  std::vector<double> row;
  for (std::int64_t d = 0; d < sizes.width; ++d) {
    std::vector<double> gates;
    std::vector<double> numbers;
    for (std::int64_t token = begin; token < (entry + 1) * sizes.ratio; ++token) {
      const bool is_own = token >= entry * sizes.ratio;
      const std::int64_t column = d + (is_own ? (sizes.series - 1) * sizes.width : 0);
      const double gate = number_of(args, sequence, token, 1, column);
      const double bias = args.bias.load({token % sizes.ratio, column});
      gates.push_back(intermediate(arithmetic, args.kv.dtype, gate + bias));
      numbers.push_back(number_of(args, sequence, token, 0, column));
    }
    row.push_back(pool(gates, numbers, arithmetic, args.kv.dtype));
  }
  return row;
}

void normalise(const CompressKeysArgs& args, std::vector<double>& row, Arithmetic arithmetic) {
  const double mean = dot(arithmetic, row, row) / static_cast<double>(row.size());
  const double factor = in_register(arithmetic, 1.0 / std::sqrt(mean + args.epsilon));
  for (std::size_t d = 0; d < row.size(); ++d) {
    const double weight = args.gamma.load({static_cast<std::int64_t>(d)});
    row[d] =
        intermediate(arithmetic, args.kv.dtype, in_register(arithmetic, row[d] * factor) * weight);
  }
}

void write_entry(const CompressKeysArgs& args, const Sequence& sequence, std::int64_t b,
                 std::int64_t entry, Arithmetic arithmetic) {
  const Sizes sizes = sizes_of(args);
  std::vector<double> row = pooled_row(args, sequence, entry, arithmetic);
  normalise(args, row, arithmetic);
  rotate_tail(row, args.freqs_cis, entry * sizes.ratio, arithmetic);
  // Sums of both signs: what they may be off by follows from the largest of the row.
  const std::vector<double> reach(row.size(), kSumReach * largest_magnitude(row));
  const PagedKvOperand rows(args.cache.key(args.layer));
  encode_row(rows, b, 0, entry, row, reach, arithmetic);
}

void keep_tokens(const CompressKeysArgs& args, const Sequence& sequence) {
  const std::int64_t rows = args.state.shape[1];
  const std::int64_t first = std::max(sequence.cached, sequence.end - rows);
  for (std::int64_t token = first; token < sequence.end; ++token) {
    for (std::int64_t column = 0; column < args.kv.shape[1]; ++column) {
      for (const std::int64_t part : {0, 1}) {
        args.state.store({sequence.slot, token % rows, part, column},
                         number_of(args, sequence, token, part, column));
      }
    }
  }
}

}  // namespace

void compress_keys(const CompressKeysArgs& args, Arithmetic arithmetic) {
  const std::int64_t ratio = args.bias.shape[0];
  for (std::int64_t b = 0; b < args.cache.batch(); ++b) {
    const Sequence sequence = sequence_of(args, b);
    for (std::int64_t entry = sequence.cached / ratio; entry < sequence.end / ratio; ++entry) {
      write_entry(args, sequence, b, entry, arithmetic);
    }
    keep_tokens(args, sequence);
  }
}

}  // namespace quire::reference
