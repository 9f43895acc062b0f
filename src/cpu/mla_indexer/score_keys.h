// SPDX-License-Identifier: Apache-2.0
// Scores on the bf16 engine: products of e4m3 numbers are exact there, sums are fp32.
#pragma once

#include "cpu/attention/row_decode.h"
#include "cpu/mla_indexer/indexer_item.h"
#include "cpu/simd/carver.h"
#include "cpu/simd/tile_bf16.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// max(0, x), NaN stays: a maximum keeps it on x86, in this order, and loses it on Arm.
HWY_INLINE F32Vector positive_part(F32Vector x) {
  const F32Vector zero = hn::Zero(F32Tag());
  if constexpr (HWY_ARCH_ARM != 0) return hn::IfThenZeroElse(hn::Lt(x, zero), x);
  return hn::Max(zero, x);
}

class IndexerSpace {
 public:
  using Element = Bf16Engine::Element;

  // With a null block only used() means something.
  IndexerSpace(const IndexerShape& shape, std::byte* block, Contents contents = Contents::fresh)
      : shape_(shape),
        row_panels_(
            static_cast<int>(round_up_to(shape.heads, Bf16Engine::kRows) / Bf16Engine::kRows)) {
    Carver carver(block, contents);
    const std::int64_t rows = row_panels_ * Bf16Engine::kRows;
    queries_ = carver.take<Element>(shape.tokens * row_panels_ * query_panel());
    query_scales_ = carver.take<float>(shape.tokens * shape.heads);
    keys_ = carver.take<Element>(kIndexerChunk / Bf16Engine::kCols * key_panel());
    key_scales_ = carver.take<float>(kIndexerChunk);
    decoded_ = carver.take<Element>(kDecoded * shape.head_dim);
    products_ = carver.take<float>(rows * kStride);
    used_ = carver.used();
  }

  std::int64_t used() const { return used_; }

  void pack_queries(const IndexerQuery* queries) {
    for (std::int64_t token = 0; token < shape_.tokens; ++token) {
      const IndexerQuery& query = queries[token];
      for (int panel = 0; panel < row_panels_; ++panel) {
        const std::int64_t first = std::int64_t{panel} * Bf16Engine::kRows;
        const Element* rows[Bf16Engine::kRows];
        int count = 0;
        for (; count < Bf16Engine::kRows && first + count < shape_.heads; ++count) {
          rows[count] = decoded_ + count * shape_.head_dim;
          decode_e4m3(query.q + (first + count) * query.head_stride, shape_.head_dim,
                      decoded_ + count * shape_.head_dim);
        }
        Bf16Engine::pack_a(rows, count, shape_.head_dim,
                           queries_ + (token * row_panels_ + panel) * query_panel());
      }
      for (std::int64_t head = 0; head < shape_.heads; ++head) {
        query_scales_[token * shape_.heads + head] = query.scales[head * query.scale_stride];
      }
    }
  }

  void pack_keys(const IndexerKeys& keys) {
    for (int first = 0; first < keys.count; first += Bf16Engine::kCols) {
      const Element* columns[Bf16Engine::kCols] = {};
      for (int i = 0; i < Bf16Engine::kCols && first + i < keys.count; ++i) {
        if (keys.rows[first + i] == nullptr) continue;
        Element* out = decoded_ + i * shape_.head_dim;
        decode_e4m3(keys.rows[first + i], shape_.head_dim, out);
        columns[i] = out;
      }
      Bf16Engine::pack_b_columns(columns, Bf16Engine::kCols, shape_.head_dim,
                                 keys_ + first / Bf16Engine::kCols * key_panel());
    }
    for (int i = 0; i < keys.count; ++i) {
      key_scales_[i] = 0.0f;
      if (keys.scales[i] != nullptr) __builtin_memcpy(key_scales_ + i, keys.scales[i], 4);
    }
  }

  // Keys past `count` get scores of no meaning, up to the end of their vector.
  void score(std::int64_t token, const IndexerKeys& keys, float* scores) const {
    const int count = keys.count;
    const int panels = (count + Bf16Engine::kCols - 1) / Bf16Engine::kCols;
    {
      const Bf16Engine::Session session;
      Bf16Engine::multiply(queries_ + token * row_panels_ * query_panel(), row_panels_, keys_,
                           panels, shape_.head_dim, products_, kStride, Accumulate::overwrite);
    }
    const F32Tag f32;
    const float* weights = query_scales_ + token * shape_.heads;
    for (int key = 0; key < count; key += kF32Lanes) {
      F32Vector sum = hn::Zero(f32);
      for (std::int64_t head = 0; head < shape_.heads; ++head) {
        const F32Vector product = hn::LoadU(f32, products_ + head * kStride + key);
        sum = hn::MulAdd(positive_part(product), hn::Set(f32, weights[head]), sum);
      }
      hn::StoreU(hn::Mul(sum, hn::LoadU(f32, key_scales_ + key)), f32, scores + key);
    }
  }

 private:
  static constexpr int kDecoded = 32;  // rows on their way into a panel
  static constexpr std::int64_t kStride = kIndexerChunk + 16;
  static_assert(Bf16Engine::kRows <= kDecoded && Bf16Engine::kCols <= kDecoded);

  std::int64_t query_panel() const { return a_panel_elements<Bf16Engine>(shape_.head_dim); }
  std::int64_t key_panel() const { return b_panel_elements<Bf16Engine>(shape_.head_dim); }

  const IndexerShape& shape_;
  int row_panels_;
  Element* queries_;     // A panels [tokens][row_panels]
  float* query_scales_;  // [tokens, heads]
  Element* keys_;        // B panels [kIndexerChunk / kCols]
  float* key_scales_;    // [kIndexerChunk]
  Element* decoded_;     // [kDecoded, head_dim]
  float* products_;      // [heads in whole panels, kStride]
  std::int64_t used_ = 0;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
