// SPDX-License-Identifier: Apache-2.0
// K and V rows made from the latents of a cache, a segment of keys at a time, for Attention: no
// more of them exist than one chunk.
//
// ProjectionEngine multiplies the latents with the weight; its element may be wider than that of
// the attention, where the weight is. fp8 weights follow the oracle's fp8 product: latents are
// quantized per 128 columns, and every block of 128 has its scales.
#pragma once

#include "cpu/attention/fp8_groups.h"
#include "cpu/attention/row_decode.h"
#include "cpu/attention/workspace.h"
#include "cpu/simd/carver.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

template <typename Element, typename ProjectionEngine> class ProjectedRows {
 public:
  using Engine = ProjectionEngine;
  using Factor = typename Engine::Element;

  ProjectedRows(const UpProjection& up, Carver& carver)
      : up_(up),
        block_depth_(is_fp8(up.weight_dtype) ? kScaleBlock : up.latent),
        num_blocks_((up.latent + block_depth_ - 1) / block_depth_),
        columns_(round_up_to(up.nope + up.value, Engine::kCols)),
        row_panels_(static_cast<int>((kSegment + Engine::kRows - 1) / Engine::kRows)) {
    const std::int64_t rows = row_panels_ * Engine::kRows;
    const std::int64_t padded_depth = num_blocks_ * round_up_to(block_depth_, Engine::kDepth);
    weight_ = carver.take<Factor>(columns_ * padded_depth);
    column_scales_ = carver.take<float>(num_blocks_ * columns_);
    latents_ = carver.take<Factor>(rows * padded_depth);
    row_scales_ = carver.take<float>(num_blocks_ * kSegment);
    const std::int64_t longest = kSegment > Engine::kCols ? kSegment : Engine::kCols;
    factors_ = carver.take<Factor>(longest * up.latent);
    wide_ = carver.take<float>(kSegment * (up.latent + up.rope));
    const std::int64_t projected = up.nope + up.value;
    codes_ = carver.take<std::byte>(2 * (up.latent > projected ? up.latent : projected));
    sums_ = carver.take<float>(rows * columns_);
    products_ = carver.take<float>(rows * columns_);
    keys_ = carver.take<Element>(kSegment * (up.nope + up.rope));
    values_ = carver.take<Element>(kSegment * up.value);
  }

  void set_source(const KeySource& source) { source_ = &source; }

  // Once per item, before the first load.
  void pack_weight() {
    for (std::int64_t column = 0; column < columns_; column += Engine::kCols) {
      for (std::int64_t block = 0; block < num_blocks_; ++block) pack_panel(column, block);
    }
    for (std::int64_t block = 0; block < num_blocks_ && up_.scale != nullptr; ++block) {
      for (std::int64_t column = 0; column < columns_; ++column) {
        const bool exists = column < up_.nope + up_.value;
        const std::int64_t row = (up_.first_row + column) / kScaleBlock;
        column_scales_[block * columns_ + column] =
            exists ? up_.scale[row * up_.scale_row_stride + block * up_.scale_depth_stride] : 0.0f;
      }
    }
  }

  void load(std::int64_t head, std::int64_t first, int count, const Element** keys,
            const Element** values) {
    RowAddress addresses[kSegment];
    source_->keys.operand->locate(source_->sequence, head, first, count, addresses);
    load_latents(addresses, count);
    project();
    for (int i = 0; i < count; ++i) {
      keys[i] = values[i] = nullptr;
      if (addresses[i].row == nullptr) continue;
      finish_row(i);
      keys[i] = keys_ + i * (up_.nope + up_.rope);
      values[i] = values_ + i * up_.value;
    }
  }

 private:
  std::int64_t depth_of(std::int64_t block) const {
    const std::int64_t left = up_.latent - block * block_depth_;
    return left < block_depth_ ? left : block_depth_;
  }
  Factor* weight_panels(std::int64_t block) const {
    return weight_ + block * columns_ * round_up_to(block_depth_, Engine::kDepth);
  }
  Factor* latent_panels(std::int64_t block) const {
    return latents_ +
           block * row_panels_ * Engine::kRows * round_up_to(block_depth_, Engine::kDepth);
  }
  const std::byte* weight_at(std::int64_t column, std::int64_t k) const {
    return up_.weight +
           bytes_for(up_.weight_dtype, column * up_.column_stride + k * up_.depth_stride);
  }

  void pack_panel(std::int64_t column, std::int64_t block) {
    const std::int64_t depth = depth_of(block);
    const std::int64_t left = up_.nope + up_.value - column;
    const int count = static_cast<int>(left < Engine::kCols ? left : Engine::kCols);
    const Factor* columns[Engine::kCols];
    for (int n = 0; n < count; ++n) {
      Factor* out = factors_ + n * depth;
      const std::byte* start = weight_at(column + n, block * block_depth_);
      if (up_.depth_stride == 1) {
        columns[n] = as_elements(up_.weight_dtype, start, depth, out);
        continue;
      }
      columns[n] = out;
      for (std::int64_t i = 0; i < depth; ++i) {
        const std::byte* element = weight_at(column + n, block * block_depth_ + i);
        out[i] = *as_elements(up_.weight_dtype, element, 1, out + i);
      }
    }
    Engine::pack_b_columns(
        columns, count, depth,
        weight_panels(block) + column / Engine::kCols * b_panel_elements<Engine>(depth));
  }

  // Latents, rounded, as A panels; the rope columns stay in wide_.
  void load_latents(const RowAddress* addresses, int count) {
    const std::int64_t width = up_.latent + up_.rope;
    const Factor* rows[kSegment] = {};
    for (int i = 0; i < count; ++i) {
      if (addresses[i].row == nullptr) continue;
      float* wide = wide_ + i * width;
      if (up_.rounded == DType::f32) {
        decode_row(source_->keys.plan, addresses[i], width, wide);
      } else {
        decode_row_to_odd(source_->keys.plan, addresses[i], width, wide);
        narrow_row(up_.rounded, wide, up_.latent, codes_);
        widen_row(up_.rounded, codes_, up_.latent, wide);
      }
      if (up_.scale != nullptr) quantize(wide, i);
      rows[i] = as_elements(DType::f32, reinterpret_cast<const std::byte*>(wide), up_.latent,
                            factors_ + i * up_.latent);
    }
    for (std::int64_t block = 0; block < num_blocks_; ++block) {
      for (int panel = 0; panel < row_panels_; ++panel) {
        const Factor* parts[Engine::kRows] = {};
        for (int i = 0; i < Engine::kRows && panel * Engine::kRows + i < count; ++i) {
          const Factor* row = rows[panel * Engine::kRows + i];
          if (row != nullptr) parts[i] = row + block * block_depth_;
        }
        Engine::pack_a(parts, Engine::kRows, depth_of(block),
                       latent_panels(block) + panel * a_panel_elements<Engine>(depth_of(block)));
      }
    }
  }

  // Latents become fp8 codes, exact in every engine's element.
  void quantize(float* latents, int row) {
    for (std::int64_t block = 0; block < num_blocks_; ++block) {
      row_scales_[block * kSegment + row] =
          quantize_group(latents + block * block_depth_, depth_of(block), up_.weight_dtype, codes_);
    }
  }

  // sums_ [kSegment, columns]
  void project() {
    const int panels = static_cast<int>(columns_ / Engine::kCols);
    if (up_.scale == nullptr) {
      Engine::multiply(latent_panels(0), row_panels_, weight_panels(0), panels, up_.latent, sums_,
                       columns_, Accumulate::overwrite);
      return;
    }
    for (std::int64_t block = 0; block < num_blocks_; ++block) {
      float* target = block == 0 ? sums_ : products_;
      Engine::multiply(latent_panels(block), row_panels_, weight_panels(block), panels,
                       depth_of(block), target, columns_, Accumulate::overwrite);
      const float* scales = column_scales_ + block * columns_;
      for (int r = 0; r < kSegment; ++r) {
        const float row_scale = row_scales_[block * kSegment + r];
        for (std::int64_t n = 0; n < columns_; ++n) {
          const float product = target[r * columns_ + n] * (row_scale * scales[n]);
          sums_[r * columns_ + n] = block == 0 ? product : sums_[r * columns_ + n] + product;
        }
      }
    }
  }

  // K, the rope columns behind it, and V of one key.
  void finish_row(int row) {
    float* sums = sums_ + row * columns_;
    const std::int64_t count = up_.nope + up_.value;
    if (up_.rounded != DType::f32 && up_.rounded != kElementType<Element>) {
      narrow_row(up_.rounded, sums, count, codes_);
      widen_row(up_.rounded, codes_, count, sums);
    }
    const auto store = [](const float* from, std::int64_t width, Element* to) {
      decode_run<DType::f32>(reinterpret_cast<const std::byte*>(from), width, {}, to);
    };
    Element* key = keys_ + row * (up_.nope + up_.rope);
    store(sums, up_.nope, key);
    store(wide_ + row * (up_.latent + up_.rope) + up_.latent, up_.rope, key + up_.nope);
    store(sums + up_.nope, up_.value, values_ + row * up_.value);
  }

  const UpProjection& up_;
  const KeySource* source_ = nullptr;
  std::int64_t block_depth_;
  std::int64_t num_blocks_;
  std::int64_t columns_;  // nope + value, in whole panels
  int row_panels_;
  Factor* weight_;        // B panels [blocks][columns / kCols]
  float* column_scales_;  // [blocks, columns]
  Factor* latents_;       // A panels [blocks][row_panels]
  float* row_scales_;     // [blocks, kSegment]
  Factor* factors_;       // rows or columns on their way into a panel
  float* wide_;           // [kSegment, latent + rope]
  std::byte* codes_;      // of latents, or of K and V: 16 bits or fp8
  float* sums_;           // [kSegment in whole panels, columns]
  float* products_;       // the same
  Element* keys_;         // [kSegment, nope + rope]
  Element* values_;       // [kSegment, value]
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
