// SPDX-License-Identifier: Apache-2.0
// Columns of Y with int8 activations on AMX, for many tokens. The tiles' integer sums of a group are
// those of Int8Block, and they are scaled and added in the same order: the bits are equal.
#pragma once

#include "cpu/simd/carver.h"
#include "cpu/simd/decode_packed_i8.h"
#include "cpu/simd/product_amx.h"
#include "cpu/simd/quantize_x.h"
#include "cpu/simd/store_columns.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Where the quantized X stands: codes [token block][depth block][row panel][step][16 rows][kStep], then
// f32 [groups][rows] scales, and sums of the codes where the weight has mins.
template <int kStep> struct TiledX {
  static constexpr std::int64_t kRows = 16;
  static constexpr std::int64_t kDepthBlock = 512;  // its B panels take a third of the L1 cache

  explicit TiledX(const MatmulJob& job)
      : tokens(job.tokens),
        depth(job.weight.packed.depth),
        token_block(job.token_block),
        group(job.weight.packed.group),
        groups(job.weight.packed.groups),
        has_sums(job.weight.packed.has_mins),
        base(job.packed_x) {}

  std::int64_t tokens, depth, token_block, group, groups;
  bool has_sums;
  std::byte* base;

  std::int64_t rows() const { return round_up_to(tokens, kRows); }
  std::int64_t bytes() const { return rows() * (depth + 4 * groups * (has_sums ? 2 : 1)); }
  float* scales() const { return reinterpret_cast<float*>(base + rows() * depth); }
  float* sums() const { return has_sums ? scales() + groups * rows() : nullptr; }

  std::int64_t depth_blocks() const { return (depth + kDepthBlock - 1) / kDepthBlock; }
  std::int64_t depth_of(std::int64_t block) const {
    return least(kDepthBlock, depth - block * kDepthBlock);
  }
  // Rows of a token block, in whole panels.
  std::int64_t rows_of(std::int64_t token) const { return least(token_block, rows() - token); }
  // Elements between the row panels of a depth block.
  std::int64_t panel_stride(std::int64_t block) const { return kRows * depth_of(block); }
  std::int8_t* codes(std::int64_t token, std::int64_t block) const {
    auto* codes = reinterpret_cast<std::int8_t*>(base) + token * depth;
    return codes + rows_of(token) * block * kDepthBlock;
  }
  // values [columns], used up.
  void quantize(std::int64_t token, float* values) const {
    RowCodes to(*this, token);
    quantize_row(group, depth, values, [&](std::int64_t g, const QuantizedGroup& quantized) {
      for (std::int64_t i = 0; i < group; i += kStep) {
        order_codes(quantized.codes + i, kStep, to.next());
      }
      scales()[g * rows() + token] = quantized.scale;
      if (has_sums) sums()[g * rows() + token] = static_cast<float>(quantized.sum);
    });
  }
  // A row that is there to fill a panel.
  void clear(std::int64_t token) const {
    RowCodes to(*this, token);
    for (std::int64_t k = 0; k < depth; k += kStep) __builtin_memset(to.next(), 0, kStep);
    for (std::int64_t g = 0; g < groups; ++g) {
      scales()[g * rows() + token] = 0.0f;
      if (has_sums) sums()[g * rows() + token] = 0.0f;
    }
  }

 private:
  // Where the steps of one row stand, one after another.
  class RowCodes {
   public:
    RowCodes(const TiledX& x, std::int64_t token)
        : x_(x), first_(token / x.token_block * x.token_block), row_(token - first_) {}

    std::int8_t* next() {
      if (left_ == 0) {
        left_ = x_.depth_of(++block_);
        place_ = x_.codes(first_, block_) + row_ / kRows * x_.panel_stride(block_) +
                 row_ % kRows * kStep;
      }
      std::int8_t* place = place_;
      place_ += kRows * kStep;
      left_ -= kStep;
      return place;
    }

   private:
    const TiledX& x_;
    std::int64_t first_, row_;
    std::int64_t block_ = -1;
    std::int64_t left_ = 0;  // columns of the block
    std::int8_t* place_ = nullptr;
  };

  static std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
};

template <int kStep> class Int8Tiles {
 public:
  Int8Tiles(const MatmulJob& job, std::int64_t first, std::int64_t last, Carver& carver)
      : job_(job),
        packed_(job.weight.packed),
        x_(job),
        first_(first),
        last_(last),
        start_(first / kCols * kCols),
        stride_(round_up_to(last - start_, kColumns) + 16),
        sums_(carver.take<float>(min(job.token_block, x_.rows()) * stride_)),
        partial_(carver.take<std::int32_t>(2 * kColumns * kColumns)),
        scales_(carver.take<float>(groups_at_once() * kColumns)),
        mins_(packed_.has_mins ? carver.take<float>(groups_at_once() * kColumns) : nullptr),
        numbers_(packed_.bits == 8 ? nullptr : carver.take<std::int8_t>(kColumns * block_depth())),
        cache_scales_(carver.take<float>(job.bands[0].plan.num_granules + 1)) {}

  void run() {
    const int rows = panel_rows();
    const TileShape c{rows, 64};
    const TileShape a{rows, kStep};
    const TileShape b{kStep / 4, 64};
    const AmxSession session({c, c, c, c, a, a, b, b});
    for (std::int64_t token = 0; token < job_.tokens; token += job_.token_block) {
      multiply_tokens(token);
      store_tokens(token);
    }
  }

 private:
  static constexpr std::int64_t kCols = 16;
  static constexpr std::int64_t kColumns = 32;  // of a step
  static constexpr std::int64_t kFewRows = 64;  // then X stays in L2 whole

  static std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

  std::int64_t block_depth() const { return min(x_.kDepthBlock, packed_.depth); }
  std::int64_t groups_at_once() const { return block_depth() / packed_.group; }
  int panel_rows() const { return job_.tokens < 16 ? static_cast<int>(job_.tokens) : 16; }

  // Columns [n, end) of one depth block.
  struct Step {
    std::int64_t block, n, end;

    int panels() const { return static_cast<int>((end - n) / kCols); }
  };

  void multiply_tokens(std::int64_t token) {
    const std::int64_t blocks = x_.depth_blocks();
    const std::int64_t steps = (last_ - start_ + kColumns - 1) / kColumns;
    const std::int64_t end = round_up_to(last_, kCols);
    const auto step = [&](std::int64_t block, std::int64_t i) {
      const std::int64_t n = start_ + i * kColumns;
      return Step{block, n, min(n + kColumns, end)};
    };
    // As in MatmulBlock: few rows read the weight along its rows.
    const auto at = [&](std::int64_t i) {
      return job_.tokens <= kFewRows ? step(i % blocks, i / blocks) : step(i / steps, i % steps);
    };
    for (std::int64_t i = 0; i < steps * blocks; ++i) {
      LinePrefetch ahead = i + 1 < steps * blocks ? prefetch(at(i + 1)) : LinePrefetch();
      multiply(token, at(i), ahead);
    }
  }

  LinePrefetch prefetch(const Step& step) const {
    return {packed_block(job_.weight, step.n / kCols, step.block * x_.kDepthBlock), step.panels(),
            packed_.panel_bytes, x_.depth_of(step.block) * kCols * packed_.bits / 8};
  }

  void multiply(std::int64_t token, const Step& step, LinePrefetch& ahead) {
    const std::int64_t depth = x_.depth_of(step.block);
    const std::int64_t k = step.block * x_.kDepthBlock;
    const std::int64_t group = k / packed_.group;
    for (int p = 0; p < step.panels(); ++p) {
      const std::int64_t panel = step.n / kCols + p;
      const PackedScales scales(job_.weight, panel);
      const std::int64_t count = depth / packed_.group;
      scales.load(group, count, scales_ + p * kCols, kColumns);
      if (mins_ != nullptr) scales.load_mins(group, count, mins_ + p * kCols, kColumns);
      if (numbers_ != nullptr) {
        decode_packed_i8(job_.weight, panel, k, depth, numbers_ + p * kCols * depth);
      }
    }
    const std::int8_t* numbers =
        numbers_ != nullptr
            ? numbers_
            : reinterpret_cast<const std::int8_t*>(packed_block(job_.weight, step.n / kCols, k));
    const AmxProduct<AmxInt8Numbers<kStep>> product{
        .a = x_.codes(token, step.block),
        .a_panel = x_.panel_stride(step.block),
        .b = numbers,
        .b_panel = numbers_ != nullptr ? kCols * depth : packed_.panel_bytes,
        .steps = depth / kStep,
        .group_steps = packed_.group / kStep,
        .panel_rows = panel_rows(),
        .partial = partial_,
        .sums = sums_ + (step.n - start_),
        .sums_stride = stride_,
        .column_scales = scales_,
        .scales_stride = kColumns,
        .row_scales = x_.scales() + group * x_.rows() + token,
        .row_scales_stride = x_.rows(),
        .column_mins = mins_,
        .row_sums = mins_ == nullptr ? nullptr : x_.sums() + group * x_.rows() + token,
        .row_sums_stride = x_.rows(),
        .accumulate = step.block == 0 ? Accumulate::overwrite : Accumulate::add,
        .prefetch = &ahead};
    product.run(static_cast<int>(x_.rows_of(token) / 16), step.panels());
  }

  void store_tokens(std::int64_t token) {
    const std::int64_t count = min(job_.token_block, job_.tokens - token);
    for (std::int64_t t = 0; t < count; ++t) {
      store_sums(job_, token + t, first_, last_, sums_ + t * stride_ + (first_ - start_),
                 cache_scales_);
    }
  }

  const MatmulJob& job_;
  const PackedLayout& packed_;
  TiledX<kStep> x_;
  std::int64_t first_, last_;  // columns of Y
  std::int64_t start_;         // first_, down to a panel's border
  std::int64_t stride_;
  float* sums_;            // [token block][stride_]
  std::int32_t* partial_;  // [2][32][32]
  float* scales_;          // [groups of a depth block][kColumns]
  float* mins_;            // the same, null: the weight has none
  std::int8_t* numbers_;   // B panels of a step, null: they are multiplied where they stand
  float* cache_scales_;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
