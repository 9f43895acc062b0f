// SPDX-License-Identifier: Apache-2.0
// Columns of Y = X · Wᵀ on one engine: B panels of one depth block at a time multiply all tokens of
// a block; their sums stay until the depth is complete.
#pragma once

#include "cpu/simd/few_rows.h"
#include "cpu/simd/matmul_shape.h"
#include "cpu/simd/panel_source.h"
#include "cpu/simd/store_columns.h"
#include "cpu/simd/sum_update.h"

#if defined(__AMX_BF16__)
#include "cpu/simd/product_amx.h"
#endif

namespace quire::cpu::QUIRE_CPU_TARGET {

// An engine that sums a part of the depth at a time adds each part to where it belongs, once.
template <typename Engine>
concept SumsParts = requires {
  Engine::kSummed;
};

template <typename Engine> class MatmulBlock {
 public:
  using Element = typename Engine::Element;

  static std::int64_t scratch_bytes(const MatmulJob& job, std::int64_t columns) {
    Carver carver(nullptr);
    // A range may begin and end inside a panel.
    MatmulBlock block(job, 0, columns + 2 * Engine::kCols, carver);
    return carver.used();
  }

  MatmulBlock(const MatmulJob& job, std::int64_t first, std::int64_t last, Carver& carver)
      : job_(job),
        shape_(job),
        first_(first),
        last_(last),
        start_(first / Engine::kCols * Engine::kCols),
        columns_(columns_at_once(job)),
        panels_(job, columns_ / Engine::kCols, carver) {
    const std::int64_t most = round_up_to(last - start_, columns_);
    sums_stride_ = most + 16;  // not a power of two
    rows_ = round_up_to(min(job.token_block, job.tokens), shape_.panel_rows);
    sums_ = carver.take<float>(rows_ * sums_stride_);
    partial_ = carver.take<float>(kPartialRows * columns_);
    groups_ = job.scaling == Scaling::per_group ? (job.depth_block + job.group - 1) / job.group : 1;
    column_scales_ = carver.take<float>(groups_ * columns_ > most ? groups_ * columns_ : most);
    if (shape_.sum_groups != 0) column_mins_ = carver.take<float>(groups_ * columns_);
    if (job.x.scale != nullptr) row_scales_ = carver.take<float>(all_groups() * rows_);
    cache_scales_ = carver.take<float>(job.bands[0].plan.num_granules + 1);
    if (FewRows<Engine>::takes(job)) wide_x_ = carver.take<float>(FewRows<Engine>::x_elements(job));
  }

  void run() {
    const typename Engine::Session session(shape_.panel_rows);
    for (std::int64_t token = 0; token < job_.tokens; token += job_.token_block) {
      if (job_.scaling == Scaling::per_group) load_row_scales(token);
      multiply_tokens(token);
      store_tokens(token);
    }
  }

 private:
  // Columns that are multiplied together: panels that stay in the L1 cache under many row panels.
  static constexpr std::int64_t kColumns = Engine::kCols > 32 ? Engine::kCols : 32;
  static constexpr std::int64_t kPartialRows = 64;
  static constexpr std::int64_t kFewRows = 64;  // then X stays in L2 whole

  // Few tokens: long reads. Decoded panels have to stay in L1, between being written and read.
  static std::int64_t columns_at_once(const MatmulJob& job) {
    const bool is_decoded = job.weight.is_packed() && job.weight.packed.bits < 16;
    if (job.tokens > kFewRows || is_decoded) return kColumns;
    return job.tokens == 1 ? 8 * kColumns : 4 * kColumns;
  }

  static constexpr std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  std::int64_t all_groups() const { return (shape_.depth + job_.group - 1) / job_.group; }

  // Columns [n, end) of one depth block.
  struct Step {
    std::int64_t block, n, end;
  };
  Step step_at(std::int64_t block, std::int64_t n) const {
    return {block, n, min(n + columns_, round_up_to(last_, Engine::kCols))};
  }
  static int panels_of(const Step& step) {
    return static_cast<int>((step.end - step.n) / Engine::kCols);
  }

  void multiply_tokens(std::int64_t token) {
    if (FewRows<Engine>::takes(job_)) return multiply_few_rows();
    const std::int64_t rows = shape_.rows_of(token);
    const std::int64_t blocks = shape_.depth_blocks();
    const std::int64_t steps = (last_ - start_ + columns_ - 1) / columns_;
    // Few rows: all of X stays in L2, and the weight is read along its rows. Many: a depth block of
    // X stays there while all columns pass.
    const auto at = [&](std::int64_t i) {
      return job_.tokens <= kFewRows ? step_at(i % blocks, start_ + i / blocks * columns_)
                                     : step_at(i / steps, start_ + i % steps * columns_);
    };
    for (std::int64_t i = 0; i < steps * blocks; ++i) {
      // The pieces of the weight are too short for the hardware's prefetcher.
      LinePrefetch ahead = i + 1 < steps * blocks ? prefetch(at(i + 1)) : LinePrefetch();
      multiply(token, rows, at(i), ahead);
    }
  }

  LinePrefetch prefetch(const Step& step) const {
    return panels_.prefetch(step.n, panels_of(step), step.block * job_.depth_block,
                            shape_.depth_of(step.block));
  }

  // Adds the rows of a token block times the panels of a step to the sums.
  void multiply(std::int64_t token, std::int64_t rows, const Step& step, LinePrefetch& ahead) {
    const std::int64_t depth = shape_.depth_of(step.block);
    const Panels<Element> b =
        panels_.load(step.n, panels_of(step), step.block * job_.depth_block, depth);
    const Element* x =
        reinterpret_cast<const Element*>(job_.packed_x) + shape_.packed_offset(token, step.block);
    if (job_.scaling == Scaling::per_group) load_column_scales(step, depth);
    if (shape_.is_narrow()) return multiply_narrow(x, b, step, depth);
#if defined(__AMX_BF16__)
    if constexpr (sizeof(Element) == 2) {
      return multiply_on_tiles(x, token, rows, b, step, depth, ahead);
    }
#endif
    const std::int64_t panels = rows / Engine::kRows;
    const std::int64_t lines = ahead.lines() / panels + 1;
    for (std::int64_t m = 0; m < panels; ++m) {
      ahead.advance(lines);
      multiply_panel(x + m * shape_.panel_elements(step.block), token, m * Engine::kRows, b, step,
                     depth);
    }
  }

  std::int64_t group_depth(std::int64_t depth) const {
    return job_.scaling == Scaling::per_group ? job_.group : depth;
  }

  // One row panel of the token block, all its groups.
  void multiply_panel(const Element* x, std::int64_t token, std::int64_t row,
                      const Panels<Element>& b, const Step& step, std::int64_t depth) {
    if (adds_to_sums()) {
      Engine::multiply(x, 1, b.numbers, panels_of(step), depth, sums_at(step, row), sums_stride_,
                       accumulate(step, 0), {.a = 0, .b = b.stride});
      return;
    }
    const std::int64_t unit = group_depth(depth);
    for (std::int64_t k = 0, group = 0; k < depth; k += unit, ++group) {
      for (int n = 0; n < panels_of(step); ++n) {
        Engine::multiply(x + k * Engine::kRows, 1, b.numbers + n * b.stride + k * Engine::kCols, 1,
                         min(unit, depth - k), partial_, Engine::kCols, Accumulate::overwrite);
        update(step, token, row, Engine::kRows, n * Engine::kCols, Engine::kCols, group);
      }
    }
  }

  void multiply_narrow(const Element* x, const Panels<Element>& b, const Step& step,
                       std::int64_t depth) {
    if (adds_to_sums()) {
      Engine::multiply_narrow(x, shape_.panel_rows, b.numbers, panels_of(step), depth,
                              sums_at(step, 0), sums_stride_, accumulate(step, 0), b.stride);
      return;
    }
    const std::int64_t unit = group_depth(depth);
    const int width = static_cast<int>(step.end - step.n);
    for (std::int64_t k = 0, group = 0; k < depth; k += unit, ++group) {
      Engine::multiply_narrow(x + k * shape_.panel_rows, shape_.panel_rows,
                              b.numbers + k * Engine::kCols, panels_of(step), min(unit, depth - k),
                              partial_, width, Accumulate::overwrite, b.stride);
      update(step, 0, 0, shape_.panel_rows, 0, width, group);
    }
  }

  // partial_ [rows, width] of columns step.n + column on, to the sums.
  void update(const Step& step, std::int64_t token, std::int64_t row, int rows, std::int64_t column,
              int width, std::int64_t group) {
    const SumUpdate update{.partial = partial_,
                           .partial_stride = width,
                           .sums = sums_at(step, row) + column,
                           .sums_stride = sums_stride_,
                           .column_scales = column_scales(group, column),
                           .row_scales = row_scales(step, group, row),
                           .column_mins = column_mins(group, column),
                           .row_sums = row_sums(step, group, token + row),
                           .rows = rows,
                           .columns = width,
                           .accumulate = accumulate(step, group)};
    update.run(0, rows);
  }

  bool adds_to_sums() const {
    return SumsParts<Engine> && job_.scaling == Scaling::at_end;
  }
  float* sums_at(const Step& step, std::int64_t row) const {
    return sums_ + row * sums_stride_ + (step.n - start_);
  }
  Accumulate accumulate(const Step& step, std::int64_t group) const {
    return step.block == 0 && group == 0 ? Accumulate::overwrite : Accumulate::add;
  }
  const float* column_scales(std::int64_t group, std::int64_t column) const {
    if (job_.scaling == Scaling::at_end) return nullptr;
    return column_scales_ + group * columns_ + column;
  }
  const float* row_scales(const Step& step, std::int64_t group, std::int64_t row) const {
    if (job_.scaling == Scaling::at_end || job_.x.scale == nullptr) return nullptr;
    return row_scales_ + (step.block * job_.depth_block / job_.group + group) * rows_ + row;
  }

  const float* column_mins(std::int64_t group, std::int64_t column) const {
    return column_mins_ == nullptr ? nullptr : column_mins_ + group * columns_ + column;
  }
  // Weights with mins have the job's groups.
  const float* row_sums(const Step& step, std::int64_t group, std::int64_t token) const {
    if (column_mins_ == nullptr) return nullptr;
    const std::int64_t first = step.block * job_.depth_block / job_.group;
    return shape_.row_sums(job_.packed_x) + (first + group) * shape_.row_sums_stride() + token;
  }

  void multiply_few_rows() {
    const FewRows<Engine> rows(job_, wide_x_, shape_.row_sums(job_.packed_x),
                               shape_.row_sums_stride());
    rows.multiply(start_ / Engine::kCols,
                  (round_up_to(last_, Engine::kCols) - start_) / Engine::kCols, sums_,
                  sums_stride_);
  }

#if defined(__AMX_BF16__)
  void multiply_on_tiles(const std::uint16_t* x, std::int64_t token, std::int64_t rows,
                         const Panels<std::uint16_t>& b, const Step& step, std::int64_t depth,
                         LinePrefetch& ahead) {
    const AmxProduct<AmxBf16Numbers> product{.a = x,
                                             .a_panel = shape_.panel_elements(step.block),
                                             .b = b.numbers,
                                             .b_panel = b.stride,
                                             .steps = (depth + 31) / 32,
                                             .group_steps = (group_depth(depth) + 31) / 32,
                                             .partial = partial_,
                                             .sums = sums_ + (step.n - start_),
                                             .sums_stride = sums_stride_,
                                             .column_scales = column_scales(0, 0),
                                             .scales_stride = columns_,
                                             .row_scales = row_scales(step, 0, 0),
                                             .row_scales_stride = rows_,
                                             .column_mins = column_mins(0, 0),
                                             .row_sums = row_sums(step, 0, token),
                                             .row_sums_stride = shape_.row_sums_stride(),
                                             .accumulate = accumulate(step, 0),
                                             .prefetch = &ahead};
    product.run(static_cast<int>(rows / Engine::kRows), panels_of(step));
  }
#endif

  // column_scales_ [groups][columns_] of a step, column_mins_ with them.
  void load_column_scales(const Step& step, std::int64_t depth) {
    const WeightView& weight = job_.weight;
    const std::int64_t k = step.block * job_.depth_block;
    if (weight.is_packed() && job_.group == weight.group) return load_packed_scales(step, depth);
    for (std::int64_t at = 0, group = 0; at < depth; at += job_.group, ++group) {
      float* scales = column_scales_ + group * columns_;
      if (weight.is_packed()) {
        const std::int64_t width = weight.packed.width;
        for (std::int64_t n = step.n; n < step.end; n += width) {
          const PackedScales packed(weight, n / width);
          packed.load((k + at) / weight.group, 1, scales + (n - step.n), width);
        }
        continue;
      }
      const std::int64_t end = min(step.end, weight.rows);
      for (std::int64_t n = step.n; n < end; ++n) {
        scales[n - step.n] = scale_at(weight, n, k + at);
        if (column_mins_ != nullptr) {
          column_mins_[group * columns_ + n - step.n] = min_at(weight, n, k + at);
        }
      }
    }
  }

  // The weight's own groups, a panel at a time.
  void load_packed_scales(const Step& step, std::int64_t depth) {
    const WeightView& weight = job_.weight;
    const std::int64_t width = weight.packed.width;
    const std::int64_t first = step.block * job_.depth_block / job_.group;
    const std::int64_t count = (depth + job_.group - 1) / job_.group;
    for (std::int64_t n = step.n; n < step.end; n += width) {
      const PackedScales packed(weight, n / width);
      packed.load(first, count, column_scales_ + (n - step.n), columns_);
      if (column_mins_ != nullptr) {
        packed.load_mins(first, count, column_mins_ + (n - step.n), columns_);
      }
    }
  }

  // row_scales_ [groups of the whole depth][rows_].
  void load_row_scales(std::int64_t token) {
    if (job_.x.scale == nullptr) return;
    const std::int64_t count = min(job_.token_block, job_.tokens - token);
    for (std::int64_t group = 0; group < all_groups(); ++group) {
      for (std::int64_t row = 0; row < rows_; ++row) {
        row_scales_[group * rows_ + row] =
            row < count ? input_scale(job_.x, token + row, group * job_.group) : 0.0f;
      }
    }
  }

  // column_scales_ [last − first] of the whole depth.
  void load_end_scales() {
    const WeightView& weight = job_.weight;
    if (!weight.is_packed()) {
      for (std::int64_t n = first_; n < last_; ++n) {
        column_scales_[n - first_] = scale_at(weight, n, 0);
      }
      return;
    }
    const std::int64_t width = weight.packed.width;
    for (std::int64_t n = first_ / width * width; n < last_; n += width) {
      alignas(64) float scales[32];
      PackedScales(weight, n / width).load(0, 1, scales, width);
      for (std::int64_t i = n < first_ ? first_ - n : 0; i < width && n + i < last_; ++i) {
        column_scales_[n + i - first_] = scales[i];
      }
    }
  }

  // Scales that were left to the end, bias, and then to their places.
  void store_tokens(std::int64_t token) {
    const bool is_scaled = kTakesNumbers<Engine> && job_.scaling == Scaling::at_end &&
                           (job_.x.scale != nullptr || has_end_scales(job_.weight));
    if (is_scaled) {
      if (has_end_scales(job_.weight)) {
        load_end_scales();
      } else {
        for (std::int64_t i = 0; i < last_ - first_; ++i) column_scales_[i] = 1.0f;
      }
    }
    const std::int64_t end = min(token + job_.token_block, job_.tokens);
    const std::int64_t count = last_ - first_;
    for (std::int64_t t = token; t < end; ++t) {
      float* values = sums_ + (t - token) * sums_stride_ + (first_ - start_);
      if (is_scaled) {
        const float scale = input_scale(job_.x, t, 0);
        for (std::int64_t i = 0; i < count; ++i) values[i] *= column_scales_[i] * scale;
      }
      store_sums(job_, t, first_, last_, values, cache_scales_);
    }
  }

  static bool has_end_scales(const WeightView& weight) {
    if (weight.is_packed()) return weight.packed.group != 0;
    return weight.scale != nullptr || weight.codes == Codes::blocks_32;
  }

  const MatmulJob& job_;
  MatmulShape<Engine> shape_;
  std::int64_t first_, last_;  // columns of Y
  std::int64_t start_;         // first_, down to a panel's border
  std::int64_t columns_;       // of a step
  PanelSource<Engine> panels_;
  std::int64_t rows_;  // of the largest token block
  std::int64_t groups_;
  std::int64_t sums_stride_;
  float* sums_;     // [rows_][sums_stride_], column 0 is start_
  float* partial_;  // one group's sums
  float* column_scales_;
  float* column_mins_ = nullptr;
  float* row_scales_ = nullptr;
  float* cache_scales_;
  float* wide_x_ = nullptr;  // X in f32, for products without tiles
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
