// SPDX-License-Identifier: Apache-2.0
// mla_decode over e4m3 latents as fp8 tensor cores multiply: codes alone, their scales outside of the sums of q · k and
// inside of the weights of V.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/kv_operand.h"
#include "reference/arithmetic.h"
#include "reference/attention_row.h"

namespace quire::reference {

// Softmax weights as such products take them.
enum class WeightRounding : std::uint8_t {
  e4m3,
  e4m3_and_e5m2,  // a sum of two such numbers: off by 2^-7 at most
};

// The keys [0, num_keys) of a sequence. The random evaluation adds up 128 columns of q · k and 64 keys of weights · V as
// Hopper's tensor cores do (`short_dot`), and those sums in fp32; the naive one adds up term by term.
class LatentProducts {
 public:
  // Whether the latent columns of such rows are e4m3.
  static bool take(const RowFormat& format, std::int64_t latent);

  LatentProducts(const KvOperandRef& operand, std::int64_t sequence, std::int64_t num_keys,
                 std::int64_t latent, Arithmetic arithmetic);

  // q' rounded to e4m3, 128 columns at a time; columns that are not e4m3 in the cache stay as they are.
  std::vector<double> round_query(std::span<const double> q) const;
  // q' · the rows of `keys`.
  std::vector<double> scores(std::span<const double> q, std::span<const std::int64_t> keys) const;
  // Σ_j softmax(scores)_j · latent(keys[j]). Keys ascend.
  AttentionRow attend(std::span<const double> scores, std::span<const std::int64_t> keys,
                      WeightRounding rounding, DType dtype) const;

 private:
  // Columns of one dtype and one scale, at most 128.
  struct Run {
    std::size_t first;
    std::size_t count;
    bool is_e4m3;
    bool is_latent;
  };
  struct Row {
    std::vector<double> codes;   // [columns]
    std::vector<double> scales;  // [runs]
  };
  std::span<const double> codes(std::int64_t key, const Run& run) const;
  double scale(std::int64_t key, std::size_t run) const;
  double tile_power(std::int64_t key, std::size_t run) const;
  void add_tile(std::span<const std::int64_t> keys, std::span<const double> weights,
                WeightRounding rounding, std::vector<double>& out) const;
  std::vector<double> sum_values(std::span<const std::int64_t> keys,
                                 std::span<const double> weights, const Run& run) const;

  std::vector<Run> runs_;
  std::vector<Row> rows_;                    // [num_keys]
  std::vector<std::vector<double>> powers_;  // [tiles of 64 keys][runs]
  std::int64_t latent_;
  Arithmetic arithmetic_;
};

}  // namespace quire::reference
