// SPDX-License-Identifier: Apache-2.0
// Columns of Y = X · Wᵀ on one engine: weight rows become B panels of one depth block at a time,
// multiply all tokens, and are gone; the sums of a token block stay until the depth is complete.
#pragma once

#include "cpu/fused_qkv_matmul/job.h"
#include "cpu/simd/decode_weight.h"
#include "cpu/simd/store_columns.h"
#include "cpu/simd/tile.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Hands out parts of a scratch buffer, each on a cache line of its own.
class ScratchParts {
 public:
  explicit ScratchParts(std::byte* base) : base_(base) {}
  template <typename T> T* take(std::int64_t count) {
    T* part = reinterpret_cast<T*>(base_ + used_);
    used_ = round_up_to(used_ + count * static_cast<std::int64_t>(sizeof(T)), 64);
    return part;
  }
  std::int64_t used() const { return used_; }

 private:
  std::byte* base_;
  std::int64_t used_ = 0;
};

// Sizes of a job on an engine, and where the packed X of a block stands:
// [token block][depth block][row panel][panel].
template <typename Engine> struct MatmulShape {
  explicit MatmulShape(const MatmulJob& job)
      : tokens(job.tokens),
        depth(job.weight.columns),
        depth_block(job.depth_block),
        token_block(job.token_block) {}

  std::int64_t tokens, depth, depth_block, token_block;

  std::int64_t depth_blocks() const { return (depth + depth_block - 1) / depth_block; }
  std::int64_t depth_of(std::int64_t block) const {
    const std::int64_t left = depth - block * depth_block;
    return left < depth_block ? left : depth_block;
  }
  // Rows of a token block, in whole panels.
  std::int64_t rows_of(std::int64_t first_token) const {
    const std::int64_t left = tokens - first_token;
    return round_up_to(left < token_block ? left : token_block, Engine::kRows);
  }
  std::int64_t padded_depth() const {
    return (depth_blocks() - 1) * depth_block +
           round_up_to(depth_of(depth_blocks() - 1), Engine::kDepth);
  }
  std::int64_t packed_elements() const {
    return round_up_to(tokens, Engine::kRows) * padded_depth();
  }
  std::int64_t packed_offset(std::int64_t first_token, std::int64_t block) const {
    return first_token * padded_depth() + rows_of(first_token) * block * depth_block;
  }
};

template <typename Engine> class MatmulBlock {
 public:
  using Element = typename Engine::Element;

  static std::int64_t scratch_bytes(const MatmulJob& job, std::int64_t columns) {
    MatmulBlock block(job, 0, columns, nullptr);
    return block.scratch_used_;
  }

  MatmulBlock(const MatmulJob& job, std::int64_t first, std::int64_t last, std::byte* scratch)
      : job_(job), shape_(job), first_(first), last_(last) {
    ScratchParts parts(scratch);
    sums_stride_ = round_up_to(last - first, kColumns) + 16;  // not a power of two
    const std::int64_t rows = round_up_to(min(job.token_block, job.tokens), Engine::kRows);
    sums_ = parts.take<float>(rows * sums_stride_);
    if (job.scaling == Scaling::per_block) partial_ = parts.take<float>(rows * kColumns);
    panels_ = parts.take<Element>(kColumns * round_up_to(job.depth_block, Engine::kDepth));
    decoded_ = parts.take<Element>(Engine::kCols * job.depth_block);
    column_scales_ = parts.take<float>(round_up_to(last - first, kColumns));
    row_scales_ = parts.take<float>(job.bands[0].plan.num_granules + 1);
    scratch_used_ = parts.used();
  }

  void run() {
    const typename Engine::Session session;
    for (std::int64_t token = 0; token < job_.tokens; token += job_.token_block) {
      multiply_tokens(token);
      store_tokens(token);
    }
  }

 private:
  // Columns whose panels are packed together: few enough weight rows for the prefetcher to follow,
  // and panels that stay in the L1 cache under many row panels.
  static constexpr std::int64_t kColumns = Engine::kCols > 32 ? Engine::kCols : 32;
  // The weight format that needs no decoding.
  static constexpr Codes kPlain = sizeof(Element) == 2 ? Codes::bf16 : Codes::f32;
  static constexpr std::int64_t kFewRows = 64;  // then X stays in L2 whole

  static constexpr std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

  // Columns [n, end) of one depth block.
  struct Step {
    std::int64_t block, n, end;
  };

  void multiply_tokens(std::int64_t token) {
    const std::int64_t rows = shape_.rows_of(token);
    const std::int64_t blocks = shape_.depth_blocks();
    if (rows <= kFewRows) {
      // Whole weight rows one after another: long runs for the prefetcher.
      const std::int64_t width = rows <= Engine::kRows ? Engine::kCols : kColumns;
      for (std::int64_t n = first_; n < last_; n += width) {
        for (std::int64_t block = 0; block < blocks; ++block) {
          const Step step{block, n, min(n + width, last_)};
          pack(step);
          multiply(token, 0, rows, step);
        }
      }
      return;
    }
    // One depth block of X stays in L2 while all columns pass. The slices of weight rows are too
    // short for the prefetcher, so they are asked for one step ahead.
    for (Step step{0, first_, min(first_ + kColumns, last_)}; step.block < blocks;) {
      const Step next = after(step);
      pack(step);
      constexpr std::int64_t kParts = 8;
      const std::int64_t part = round_up_to((rows + kParts - 1) / kParts, 2 * Engine::kRows);
      for (std::int64_t row = 0, i = 0; row < rows; row += part, ++i) {
        prefetch(next, i, kParts);
        multiply(token, row, min(part, rows - row), step);
      }
      step = next;
    }
  }

  Step after(const Step& step) const {
    const bool is_last = step.end == last_;
    const std::int64_t n = is_last ? first_ : step.end;
    return {is_last ? step.block + 1 : step.block, n, min(n + kColumns, last_)};
  }

  // Part i of the weight slices of a step, into L2.
  void prefetch(const Step& step, std::int64_t i, std::int64_t parts) const {
    if (job_.weight.codes != kPlain || step.block >= shape_.depth_blocks()) return;
    const std::int64_t bytes = shape_.depth_of(step.block) * std::int64_t{sizeof(Element)};
    const std::int64_t offset = step.block * job_.depth_block * std::int64_t{sizeof(Element)};
    for (std::int64_t n = step.n + i; n < step.end; n += parts) {
      const std::byte* slice = job_.weight.data + n * job_.weight.row_stride + offset;
      for (std::int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(slice + line, 0, 2);
    }
  }

  void pack(const Step& step) {
    int panel = 0;
    for (std::int64_t n = step.n; n < step.end; n += Engine::kCols) pack_panel(step, n, panel++);
    if (job_.scaling == Scaling::at_end) return;
    for (std::int64_t n = step.n; n < step.end; ++n) {
      column_scales_[n - step.n] = scale_at(job_.weight, n, step.block * job_.depth_block);
    }
  }

  // Adds rows [row, row + rows) of a token block times the packed panels to the sums.
  void multiply(std::int64_t token, std::int64_t row, std::int64_t rows, const Step& step) {
    const std::int64_t depth = shape_.depth_of(step.block);
    const Element* x = reinterpret_cast<const Element*>(job_.packed_x) +
                       shape_.packed_offset(token, step.block) +
                       row / Engine::kRows * a_panel_elements<Engine>(depth);
    const auto row_panels = static_cast<int>(rows / Engine::kRows);
    const auto col_panels =
        static_cast<int>((step.end - step.n + Engine::kCols - 1) / Engine::kCols);
    float* sums = sums_ + row * sums_stride_ + (step.n - first_);
    if (job_.scaling == Scaling::per_block) {
      Engine::multiply(x, row_panels, panels_, col_panels, depth, partial_, kColumns,
                       Accumulate::overwrite);
      add_scaled(token + row, rows, step, sums);
    } else {
      Engine::multiply(x, row_panels, panels_, col_panels, depth, sums, sums_stride_,
                       step.block == 0 ? Accumulate::overwrite : Accumulate::add);
    }
  }

  void pack_panel(const Step& step, std::int64_t n, int panel) {
    const std::int64_t depth = shape_.depth_of(step.block);
    const std::int64_t k = step.block * job_.depth_block;
    const auto count = static_cast<int>(min(step.end - n, Engine::kCols));
    const Element* columns[Engine::kCols];
    for (int i = 0; i < count; ++i) columns[i] = weight_slice(n + i, k, depth, i);
    Engine::pack_b_columns(columns, count, depth,
                           panels_ + panel * b_panel_elements<Engine>(depth));
  }

  const Element* weight_slice(std::int64_t n, std::int64_t k, std::int64_t depth, int place) {
    const WeightView& weight = job_.weight;
    if (weight.codes == kPlain) {
      return reinterpret_cast<const Element*>(weight.data + n * weight.row_stride) + k;
    }
    Element* out = decoded_ + place * job_.depth_block;
    if constexpr (sizeof(Element) == 2) {
      decode_numbers(weight, n, k, depth, out);
    } else {
      decode_values(weight, n, k, depth, out);
    }
    return out;
  }

  // sums (+)= partial · (scale of the column's block · scale of the token's block).
  void add_scaled(std::int64_t token, std::int64_t rows, const Step& step, float* sums) {
    const std::int64_t k = step.block * job_.depth_block;
    const std::int64_t count = step.end - step.n;
    for (std::int64_t row = 0; row < rows && token + row < job_.tokens; ++row) {
      const float scale = input_scale(job_.x, token + row, k);
      float* sum = sums + row * sums_stride_;
      const float* part = partial_ + row * kColumns;
      for (std::int64_t i = 0; i < count; ++i) {
        const float value = part[i] * (column_scales_[i] * scale);
        sum[i] = step.block == 0 ? value : sum[i] + value;
      }
    }
  }

  // Scales that were left to the end, bias, and then to their places.
  void store_tokens(std::int64_t token) {
    const bool has_scales = sizeof(Element) == 2 && job_.scaling == Scaling::at_end;
    for (std::int64_t n = first_; n < last_; ++n) {
      column_scales_[n - first_] = has_scales ? scale_at(job_.weight, n, 0) : 1.0f;
    }
    const float* bias = job_.bias == nullptr ? nullptr : job_.bias + first_;
    const std::int64_t end = min(token + job_.token_block, job_.tokens);
    for (std::int64_t t = token; t < end; ++t) {
      float* values = sums_ + (t - token) * sums_stride_;
      const float scale = has_scales ? input_scale(job_.x, t, 0) : 1.0f;
      for (std::int64_t i = 0; i < last_ - first_; ++i) {
        const float sum = values[i] * (column_scales_[i] * scale);
        values[i] = bias == nullptr ? sum : sum + bias[i];
      }
      store_columns(job_, t, first_, last_, values, row_scales_);
    }
  }

  const MatmulJob& job_;
  MatmulShape<Engine> shape_;
  std::int64_t first_, last_;  // columns of Y
  std::int64_t sums_stride_;
  float* sums_;               // [token block][sums_stride_]
  float* partial_ = nullptr;  // [token block][kColumns], per_block scaling only
  Element* panels_;           // B panels of kColumns columns and one depth block
  Element* decoded_;          // [kCols][depth block]
  float* column_scales_;
  float* row_scales_;
  std::int64_t scratch_used_;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
