// SPDX-License-Identifier: Apache-2.0
// One head's projection on an engine: out = x · weightᵀ, a panel of columns at a time.
//
// fp8 weights follow the oracle's fp8 product: x is quantized per 128 columns, codes are multiplied
// exactly, and the sum of each block of 128 is scaled before it is added.
#pragma once

#include "cpu/attention/fp8_groups.h"
#include "cpu/attention/latent_item.h"
#include "cpu/attention/row_decode.h"
#include "cpu/simd/carver.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline constexpr std::int64_t kProjectionRows = 256;  // taken at a time

template <typename Engine> class Projection {
 public:
  using Element = typename Engine::Element;

  // With a null block only used() means something.
  Projection(const ProjectionItem& item, std::byte* block)
      : item_(item),
        block_depth_(is_fp8(item.weight_dtype) ? kScaleBlock : item.depth),
        num_blocks_((item.depth + block_depth_ - 1) / block_depth_) {
    Carver carver(block);
    const std::int64_t rows = round_up_to(kProjectionRows, Engine::kRows);
    x_ = carver.take<Element>(num_blocks_ * rows * round_up_to(block_depth_, Engine::kDepth));
    x_scales_ = carver.take<float>(num_blocks_ * rows);
    row_ = carver.take<float>(item.depth);
    codes_ = carver.take<std::byte>(item.depth);
    elements_ = carver.take<Element>(kLongest * (item.depth > kLongest ? item.depth : kLongest));
    weight_ = carver.take<Element>(num_blocks_ * b_panel_elements<Engine>(block_depth_));
    sums_ = carver.take<float>(rows * Engine::kCols);
    products_ = carver.take<float>(rows * Engine::kCols);
    used_ = carver.used();
  }

  std::int64_t used() const { return used_; }

  void run() {
    const typename Engine::Session session;
    for (std::int64_t row = 0; row < item_.num_rows; row += kProjectionRows) {
      const std::int64_t left = item_.num_rows - row;
      const int rows = static_cast<int>(left < kProjectionRows ? left : kProjectionRows);
      pack_x(row, rows);
      for (std::int64_t column = 0; column < item_.num_columns; column += Engine::kCols) {
        pack_weight(column);
        multiply(column, rows);
        store(row, rows, column);
      }
    }
  }

 private:
  static constexpr std::int64_t kLongest = 32;  // rows or columns of a panel, at most

  std::int64_t depth_of(std::int64_t block) const {
    const std::int64_t left = item_.depth - block * block_depth_;
    return left < block_depth_ ? left : block_depth_;
  }
  Element* x_panels(std::int64_t block) const {
    return x_ + block * round_up_to(kProjectionRows, Engine::kRows) *
                    round_up_to(block_depth_, Engine::kDepth);
  }
  Element* weight_panel(std::int64_t block) const {
    return weight_ + block * b_panel_elements<Engine>(block_depth_);
  }

  void pack_x(std::int64_t first, int count) {
    for (int row = 0; row < count; row += Engine::kRows) {
      const int rows = count - row < Engine::kRows ? count - row : Engine::kRows;
      const Element* loaded[Engine::kRows];
      for (int i = 0; i < rows; ++i) {
        loaded[i] = load_x(first + row + i, row + i, elements_ + i * item_.depth);
      }
      for (std::int64_t block = 0; block < num_blocks_; ++block) {
        const Element* pointers[Engine::kRows];
        for (int i = 0; i < rows; ++i) pointers[i] = loaded[i] + block * block_depth_;
        Engine::pack_a(
            pointers, rows, depth_of(block),
            x_panels(block) + row / Engine::kRows * a_panel_elements<Engine>(depth_of(block)));
      }
    }
  }

  // Row `row` of x as elements, in `out` if it is not stored so; with fp8 weights as codes, whose
  // scales are kept.
  const Element* load_x(std::int64_t row, int index, Element* out) {
    const std::byte* x = item_.x + row * item_.x_stride;
    if (!is_fp8(item_.weight_dtype)) return as_elements(item_.x_dtype, x, item_.depth, out);
    widen_row(item_.x_dtype, x, item_.depth, row_);
    for (std::int64_t block = 0; block < num_blocks_; ++block) {
      float* group = row_ + block * block_depth_;
      const std::int64_t count = depth_of(block);
      x_scales_[block * kProjectionRows + index] =
          quantize_group(group, count, item_.weight_dtype, codes_);
    }
    return as_elements(DType::f32, reinterpret_cast<const std::byte*>(row_), item_.depth, out);
  }

  // The weight's columns [column, column + kCols), every depth block a panel.
  void pack_weight(std::int64_t column) {
    const std::int64_t left = item_.num_columns - column;
    const int count = static_cast<int>(left < Engine::kCols ? left : Engine::kCols);
    for (std::int64_t block = 0; block < num_blocks_; ++block) {
      const std::int64_t depth = depth_of(block);
      if (item_.depth_stride == 1 || item_.column_stride != 1) {
        pack_columns(column, count, block * block_depth_, depth, weight_panel(block));
      } else {
        pack_rows(column, count, block * block_depth_, depth, weight_panel(block));
      }
    }
  }

  const std::byte* weight_at(std::int64_t column, std::int64_t k) const {
    return item_.weight +
           bytes_for(item_.weight_dtype, column * item_.column_stride + k * item_.depth_stride);
  }

  void pack_columns(std::int64_t column, int count, std::int64_t k, std::int64_t depth,
                    Element* panel) {
    const Element* columns[Engine::kCols];
    for (int n = 0; n < count; ++n) {
      Element* out = elements_ + n * depth;
      if (item_.depth_stride == 1) {
        columns[n] = as_elements(item_.weight_dtype, weight_at(column + n, k), depth, out);
        continue;
      }
      columns[n] = out;
      for (std::int64_t i = 0; i < depth; ++i) {
        out[i] = *as_elements(item_.weight_dtype, weight_at(column + n, k + i), 1, out + i);
      }
    }
    Engine::pack_b_columns(columns, count, depth, panel);
  }

  // In segments, so that a few rows at a time are decoded. A panel's depth steps follow each other.
  void pack_rows(std::int64_t column, int count, std::int64_t k, std::int64_t depth,
                 Element* panel) {
    for (std::int64_t first = 0; first < depth; first += kLongest) {
      const Element* rows[kLongest];
      const std::int64_t left = depth - first;
      const std::int64_t num_rows = left < kLongest ? left : kLongest;
      for (std::int64_t i = 0; i < num_rows; ++i) {
        rows[i] = as_elements(item_.weight_dtype, weight_at(column, k + first + i), count,
                              elements_ + i * kLongest);
      }
      Engine::pack_b_rows(rows, num_rows, count, panel + first * Engine::kCols);
    }
  }

  // sums_ [rows, kCols]
  void multiply(std::int64_t column, int rows) {
    const int panels = (rows + Engine::kRows - 1) / Engine::kRows;
    if (item_.scale == nullptr) {
      Engine::multiply(x_panels(0), panels, weight_panel(0), 1, item_.depth, sums_, Engine::kCols,
                       Accumulate::overwrite);
      return;
    }
    for (int i = 0; i < rows * Engine::kCols; ++i) sums_[i] = 0.0f;
    for (std::int64_t block = 0; block < num_blocks_; ++block) {
      Engine::multiply(x_panels(block), panels, weight_panel(block), 1, depth_of(block), products_,
                       Engine::kCols, Accumulate::overwrite);
      const float weight_scale = item_.scale[column / kScaleBlock * item_.scale_column_stride +
                                             block * item_.scale_depth_stride];
      for (int r = 0; r < rows; ++r) {
        const float scale = x_scales_[block * kProjectionRows + r] * weight_scale;
        for (int n = 0; n < Engine::kCols; ++n) {
          sums_[r * Engine::kCols + n] += products_[r * Engine::kCols + n] * scale;
        }
      }
    }
  }

  void store(std::int64_t first, int rows, std::int64_t column) const {
    const std::int64_t left = item_.num_columns - column;
    const std::int64_t count = left < Engine::kCols ? left : Engine::kCols;
    std::byte* out = item_.out + first * item_.out_stride + bytes_for(item_.out_dtype, column);
    for (int r = 0; r < rows; ++r) {
      narrow_row(item_.out_dtype, sums_ + r * Engine::kCols, count, out + r * item_.out_stride);
    }
  }

  const ProjectionItem& item_;
  std::int64_t block_depth_;
  std::int64_t num_blocks_;
  Element* x_;         // A panels [blocks][kProjectionRows / kRows]
  float* x_scales_;    // [blocks, kProjectionRows]
  float* row_;         // [depth]
  std::byte* codes_;   // [depth]
  Element* elements_;  // rows or columns on their way into a panel
  Element* weight_;    // B panels [blocks] of kCols columns
  float* sums_;
  float* products_;
  std::int64_t used_ = 0;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
