// SPDX-License-Identifier: Apache-2.0
// Sizes of a projection on an engine, and where the packed X of a block stands:
// [token block][depth block][row panel][panel]. Sums of X over the weight's groups follow it where the
// weight has mins and the engine multiplies its bare numbers: f32 [groups][rows].
#pragma once

#include "cpu/fused_qkv_matmul/job.h"
#include "cpu/simd/tile.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

template <typename Engine> struct MatmulShape {
  explicit MatmulShape(const MatmulJob& job)
      : tokens(job.tokens),
        depth(job.weight.columns),
        depth_block(job.depth_block),
        token_block(job.token_block),
        sum_groups(kTakesNumbers<Engine> && job.weight.has_mins()
                       ? (depth + job.weight.group - 1) / job.weight.group
                       : 0),
        panel_rows(tokens < Engine::kRows ? Engine::narrow_rows(static_cast<int>(tokens))
                                          : Engine::kRows) {}

  std::int64_t tokens, depth, depth_block, token_block;
  std::int64_t sum_groups;  // 0: no sums of X
  int panel_rows;  // fewer than kRows where there are few tokens: then one panel holds them all

  bool is_narrow() const { return tokens < Engine::kRows; }
  std::int64_t depth_blocks() const { return (depth + depth_block - 1) / depth_block; }
  std::int64_t depth_of(std::int64_t block) const {
    const std::int64_t left = depth - block * depth_block;
    return left < depth_block ? left : depth_block;
  }
  // Rows of a token block, in whole panels.
  std::int64_t rows_of(std::int64_t first_token) const {
    const std::int64_t left = tokens - first_token;
    return round_up_to(left < token_block ? left : token_block, panel_rows);
  }
  std::int64_t panel_elements(std::int64_t block) const {
    return panel_rows * round_up_to(depth_of(block), Engine::kDepth);
  }
  std::int64_t padded_depth() const {
    return (depth_blocks() - 1) * depth_block +
           round_up_to(depth_of(depth_blocks() - 1), Engine::kDepth);
  }
  std::int64_t packed_elements() const { return round_up_to(tokens, panel_rows) * padded_depth(); }
  std::int64_t row_sums_stride() const { return round_up_to(tokens, panel_rows); }
  // In bytes, from the start of the packed X.
  std::int64_t row_sums_offset() const {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(typename Engine::Element));
    return round_up_to(packed_elements() * kBytes, 64);
  }
  std::int64_t packed_bytes() const {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(float));
    return row_sums_offset() + sum_groups * row_sums_stride() * kBytes;
  }
  float* row_sums(std::byte* packed_x) const {
    return sum_groups == 0 ? nullptr : reinterpret_cast<float*>(packed_x + row_sums_offset());
  }
  std::int64_t packed_offset(std::int64_t first_token, std::int64_t block) const {
    return first_token * padded_depth() + rows_of(first_token) * block * depth_block;
  }
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
