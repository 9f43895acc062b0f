// SPDX-License-Identifier: Apache-2.0
#include "reference/mla_rows.h"

#include <cmath>
#include <cstddef>
#include <vector>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

// x · rsqrt(mean x² + ε), rounded to gamma's dtype, then multiplied by gamma in that dtype.
void normalise(std::span<double> latent, const TensorView& gamma, double epsilon,
               Arithmetic arithmetic) {
  const double mean = dot(arithmetic, latent, latent) / static_cast<double>(latent.size());
  const double factor = in_register(arithmetic, 1.0 / std::sqrt(mean + epsilon));
  for (std::size_t i = 0; i < latent.size(); ++i) {
    const double product = latent[i] * factor;
    const double normalised =
        round_within(arithmetic, gamma.dtype, product, kFactorReach * std::abs(product));
    const double weight = gamma.load({static_cast<std::int64_t>(i)});
    latent[i] = round_to(gamma.dtype, normalised * weight);
  }
}

// How far fp32 arithmetic may have brought a finished row. Latents that a narrower gamma has rounded
// are what they are.
std::vector<double> finished_reach(const MlaNewRows& rows, std::span<const double> row) {
  std::vector<double> reach(row.size(), 0.0);
  if (rows.kv_norm_gamma && rows.kv_norm_gamma->dtype == DType::f32) {
    for (std::int64_t i = 0; i < rows.kv_norm_gamma->shape[0]; ++i) {
      const auto column = static_cast<std::size_t>(i);
      reach[column] = kFactorReach * std::abs(row[column]);
    }
  }
  if (rows.freqs_cis) {
    const auto rope = static_cast<std::size_t>(rows.freqs_cis->shape[1]);
    for (std::size_t even = row.size() - rope; even < row.size(); even += 2) {
      reach[even] = reach[even + 1] = kFactorReach * std::hypot(row[even], row[even + 1]);
    }
  }
  return reach;
}

}  // namespace

void rotate_tail(std::span<double> row, const TensorView& freqs_cis, std::int64_t position,
                 Arithmetic arithmetic) {
  const std::int64_t rope = freqs_cis.shape[1];
  const std::span<double> tail = row.last(static_cast<std::size_t>(rope));
  for (std::int64_t even = 0; even < rope; even += 2) {
    const double cosine = freqs_cis.load({position, even});
    const double sine = freqs_cis.load({position, even + 1});
    double& a = tail[static_cast<std::size_t>(even)];
    double& b = tail[static_cast<std::size_t>(even + 1)];
    const double rotated_a = a * cosine - b * sine;
    const double rotated_b = a * sine + b * cosine;
    a = in_register(arithmetic, rotated_a);
    b = in_register(arithmetic, rotated_b);
  }
}

void finish_rows(const MlaNewRows& rows, Arithmetic arithmetic) {
  if (!rows.freqs_cis && !rows.kv_norm_gamma && !rows.kv) return;
  const PagedKvOperand keys(rows.cache.key(rows.layer));
  for (const Token& token : tokens_of(rows.row_offsets, rows.cache)) {
    std::vector<double> row = rows.kv ? load_row(*rows.kv, token.index)
                                      : decode_row(keys, token.sequence, 0, token.position);
    if (rows.kv_norm_gamma) {
      const auto latent = static_cast<std::size_t>(rows.kv_norm_gamma->shape[0]);
      normalise(std::span(row).first(latent), *rows.kv_norm_gamma, rows.epsilon, arithmetic);
    }
    if (rows.freqs_cis) rotate_tail(row, *rows.freqs_cis, token.position, arithmetic);
    encode_row(keys, token.sequence, 0, token.position, row, finished_reach(rows, row), arithmetic);
  }
}

void rotate_queries(const TensorView& q, const MlaNewRows& rows, Arithmetic arithmetic) {
  if (!rows.freqs_cis) return;
  const std::int64_t first = q.shape[2] - rows.freqs_cis->shape[1];
  for (const Token& token : tokens_of(rows.row_offsets, rows.cache)) {
    for (std::int64_t head = 0; head < q.shape[1]; ++head) {
      std::vector<double> row = load_row(q, token.index, head);
      rotate_tail(row, *rows.freqs_cis, token.position, arithmetic);
      for (std::int64_t column = first; column < q.shape[2]; ++column) {
        q.store({token.index, head, column}, row[static_cast<std::size_t>(column)]);
      }
    }
  }
}

}  // namespace quire::reference
