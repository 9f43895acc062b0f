// SPDX-License-Identifier: Apache-2.0
// B panels of one depth block of the weight, in the engine's order: where they stand if the weight
// is packed so, decoded into scratch otherwise.
#pragma once

#include "cpu/simd/carver.h"
#include "cpu/simd/decode_packed.h"
#include "cpu/simd/decode_weight.h"
#include "cpu/simd/line_prefetch.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Panels of columns [n, n + panels · kCols) of the product and columns [k, k + depth) of W.
template <typename Element> struct Panels {
  const Element* numbers;
  std::int64_t stride;  // elements between panels
};

template <typename Engine> class PanelSource {
 public:
  using Element = typename Engine::Element;
  static constexpr std::int64_t kCols = Engine::kCols;

  PanelSource(const MatmulJob& job, std::int64_t most_panels, Carver& carver)
      : job_(job), weight_(job.weight), stride_(kCols * round_up_to(job.depth_block, 32)) {
    if (is_direct()) return;
    panels_ = carver.take<Element>(most_panels * stride_);
    if (!weight_.is_packed()) decoded_ = carver.take<Element>(kCols * job.depth_block);
  }

  Panels<Element> load(std::int64_t n, std::int64_t panels, std::int64_t k, std::int64_t depth) {
    if (is_direct()) {
      const std::byte* base = packed_block(weight_, n / kCols, k);
      return {reinterpret_cast<const Element*>(base),
              weight_.packed.panel_bytes / std::int64_t{sizeof(Element)}};
    }
    for (std::int64_t p = 0; p < panels; ++p) {
      Element* panel = panels_ + p * stride_;
      weight_.is_packed() ? decode(n + p * kCols, k, depth, panel)
                          : pack(n + p * kCols, k, depth, panel);
    }
    return {panels_, stride_};
  }

  // The memory that load will read.
  LinePrefetch prefetch(std::int64_t n, std::int64_t panels, std::int64_t k,
                        std::int64_t depth) const {
    if (weight_.is_packed()) {
      const std::int64_t width = weight_.packed.width;
      return {packed_block(weight_, n / width, k), panels * kCols / width,
              weight_.packed.panel_bytes, depth * width * weight_.packed.bits / 8};
    }
    if (weight_.codes != kPlain) return {};
    const std::int64_t left = weight_.rows - n;
    return {weight_.data + n * weight_.row_stride + k * std::int64_t{sizeof(Element)},
            left < panels * kCols ? left : panels * kCols, weight_.row_stride,
            depth * std::int64_t{sizeof(Element)}};
  }

 private:
  // The weight format that needs no decoding.
  static constexpr Codes kPlain = sizeof(Element) == 2 ? Codes::bf16 : Codes::f32;

  bool is_direct() const {
    return weight_.is_packed() && weight_.codes == kPlain && weight_.packed.width == kCols;
  }

  void decode(std::int64_t n, std::int64_t k, std::int64_t depth, Element* panel) const {
    const std::int64_t width = weight_.packed.width;
    if constexpr (sizeof(Element) == 2) {
      // To the end of the engine's last step: there the packed numbers are zeros.
      decode_packed_bf16(weight_, n / width, k, round_up_to(depth, Engine::kDepth), panel);
    } else {
      for (std::int64_t column = 0; column < kCols; column += width) {
        if ((n + column) / width >= weight_.packed.panels) return;
        decode_packed_f32(weight_, (n + column) / width, k, depth, panel + column, kCols,
                          kTakesNumbers<Engine> ? Decoded::numbers : Decoded::values);
      }
    }
  }

  void pack(std::int64_t n, std::int64_t k, std::int64_t depth, Element* panel) {
    const std::int64_t left = weight_.rows - n;
    const auto count = static_cast<int>(left < kCols ? left : kCols);
    const Element* columns[kCols];
    for (int i = 0; i < count; ++i) columns[i] = slice(n + i, k, depth, i);
    Engine::pack_b_columns(columns, count, depth, panel);
  }

  const Element* slice(std::int64_t n, std::int64_t k, std::int64_t depth, int place) {
    if (weight_.codes == kPlain) {
      return reinterpret_cast<const Element*>(weight_.data + n * weight_.row_stride) + k;
    }
    Element* out = decoded_ + place * job_.depth_block;
    if constexpr (sizeof(Element) == 2) {
      for (std::int64_t at = 0; at < depth;
           at += job_.group) {  // zero points change with the group
        const std::int64_t left = depth - at;
        decode_numbers(weight_, n, k + at, left < job_.group ? left : job_.group, out + at);
      }
    } else {
      decode_values(weight_, n, k, depth, out);
    }
    return out;
  }

  const MatmulJob& job_;
  const WeightView& weight_;
  std::int64_t stride_;
  Element* panels_ = nullptr;   // [most panels][stride]
  Element* decoded_ = nullptr;  // [kCols][depth block]
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
