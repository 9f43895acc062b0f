// SPDX-License-Identifier: Apache-2.0
// Scores on AMX: products of e4m3 numbers are exact in bf16, sums are fp32. Keys are the left
// operand, as they stand once they are decoded; a row of products is then one key and all heads.
#pragma once

#include "cpu/attention/row_decode.h"
#include "cpu/attention/vector_products.h"
#include "cpu/mla_indexer/indexer_item.h"
#include "cpu/simd/carver.h"
#include "cpu/simd/tile_bf16_amx.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

class IndexerSpace {
 public:
  // With a null block only used() means something.
  IndexerSpace(const IndexerShape& shape, std::byte* block, Contents contents = Contents::fresh)
      : shape_(shape),
        heads_(round_up_to(shape.heads, kHeadStep)),
        depth_(round_up_to(shape.head_dim, AmxBf16::kDepth)) {
    Carver carver(block, contents);
    queries_ = carver.take<std::uint16_t>(shape.tokens * heads_ * depth_);
    query_scales_ = carver.take<float>(shape.tokens * heads_);
    keys_ = carver.take<std::uint16_t>(kIndexerChunk * depth_);
    decoded_ = carver.take<std::uint16_t>(AmxBf16::kCols * shape.head_dim);
    products_ = carver.take<float>(kKeyStep * heads_);
    used_ = carver.used();
  }

  std::int64_t used() const { return used_; }

  void pack_queries(const IndexerQuery* queries) {
    for (std::int64_t token = 0; token < shape_.tokens; ++token) {
      for (std::int64_t head = 0; head < heads_; head += AmxBf16::kCols) {
        pack_heads(queries[token], head, queries_ + (token * heads_ + head) * depth_);
      }
      const IndexerQuery& query = queries[token];
      for (std::int64_t head = 0; head < heads_; ++head) {
        query_scales_[token * heads_ + head] =
            head < shape_.heads ? query.scales[head * query.scale_stride] : 0.0f;
      }
    }
  }

  // Several tokens find the keys decoded; for one alone they are decoded on their way to the tiles.
  void pack_keys(const IndexerKeys& keys) {
    if (is_alone()) return;
    for (int step = 0; step < kSteps; ++step) pack_rows(keys, step, 0, kKeyStep);
  }

  // Keys past `count` get scores of no meaning.
  void score(std::int64_t token, const IndexerKeys& keys, float* scores) {
    const AmxSession session;
    const float* weights = query_scales_ + token * heads_;
    if (is_alone()) pack_rows(keys, 0, 0, kKeyStep);
    for (int step = 0; step < kSteps; ++step) {
      multiply_step(token, keys, step, weights, scores);
    }
    for (int half = 0; half < 2; ++half) add_heads(weights, kSteps - 1, half, scores);
    scale(keys, scores);
  }

 private:
  static constexpr int kKeyStep = 32;  // keys of 2 × 2 tiles of products
  static constexpr int kSteps = kIndexerChunk / kKeyStep;
  // A step takes a few keys from each of several runs of the chunk: memory answers faster where it
  // is asked in several places (cpu/attention/key_streams.h).
  static constexpr int kRuns = 8;
  static constexpr int kRunKeys = kIndexerChunk / kRuns;
  static constexpr int kStepRun = kKeyStep / kRuns;
  static constexpr int kHeadStep = 32;
  static constexpr int kSums = 16;

  bool is_alone() const { return shape_.tokens == 1; }
  std::uint16_t* step_keys(int step) const {
    return keys_ + (is_alone() ? step % 2 : step) * kKeyStep * depth_;
  }

  // Products of a step. The core sees a few hundred instructions at a time, so the vector work of
  // its neighbours stands between the tile products: the last step's sums, then the next one's keys.
  void multiply_step(std::int64_t token, const IndexerKeys& keys, int step, const float* weights,
                     float* scores) {
    const auto places = static_cast<int>(heads_ / kHeadStep * depth_ / AmxBf16::kDepth);
    const int share = (kKeyStep + places - 1) / places;
    int half = step == 0 ? 2 : 0;
    int packed = is_alone() && step + 1 < kSteps ? 0 : kKeyStep;
    for (std::int64_t head = 0; head < heads_; head += kHeadStep) {
      multiply(token, step_keys(step), head, [&] {
        if (half < 2) add_heads(weights, step - 1, half++, scores);
        pack_rows(keys, step + 1, packed, packed + share);
        packed += share;
      });
      // Its products take the place of what is still to be added.
      while (half < 2) add_heads(weights, step - 1, half++, scores);
      store_products(head);
    }
  }

  // Rows [first, last) of a step's keys, at most kKeyStep; zeros where there is no key.
  HWY_INLINE void pack_rows(const IndexerKeys& keys, int step, int first, int last) const {
    const E4m3Table table;
    std::uint16_t* rows = step_keys(step) + first * depth_;
    for (int i = first; i < last && i < kKeyStep; ++i, rows += depth_) {
      const int key = i / kStepRun * kRunKeys + step * kStepRun + i % kStepRun;
      std::int64_t k = 0;
      if (key < keys.count && keys.rows[key] != nullptr) {
        const auto* codes = reinterpret_cast<const std::uint8_t*>(keys.rows[key]);
        for (; k + 64 <= shape_.head_dim; k += 64) table.widen_64(codes + k, rows + k);
        if (k < shape_.head_dim) decode_e4m3(keys.rows[key] + k, shape_.head_dim - k, rows + k);
        k = shape_.head_dim;
      }
      for (; k < depth_; ++k) rows[k] = 0;
    }
  }

  static void scale(const IndexerKeys& keys, float* scores) {
    for (int i = 0; i < keys.count; ++i) {
      float factor = 0.0f;
      if (keys.scales[i] != nullptr) __builtin_memcpy(&factor, keys.scales[i], sizeof(factor));
      scores[i] *= factor;
    }
  }

  // 16 heads as a panel of columns; zeros past the last one.
  void pack_heads(const IndexerQuery& query, std::int64_t first, std::uint16_t* panel) {
    const std::uint16_t* columns[AmxBf16::kCols];
    int count = 0;
    for (; count < AmxBf16::kCols && first + count < shape_.heads; ++count) {
      std::uint16_t* decoded = decoded_ + count * shape_.head_dim;
      decode_e4m3(query.q + (first + count) * query.head_stride, shape_.head_dim, decoded);
      columns[count] = decoded;
    }
    AmxBf16::pack_b_columns(columns, count, shape_.head_dim, panel);
  }

  // Tiles 0-3 ← products of 32 keys and kHeadStep heads; between() runs after each 32 of depth.
  template <typename Between>
  void multiply(std::int64_t token, const std::uint16_t* a, std::int64_t head,
                Between&& between) const {
    const std::uint16_t* b = queries_ + (token * heads_ + head) * depth_;
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    tile_load<4>(a, 2 * depth_);
    tile_load<6>(b, 64);
    tile_load<7>(b + 16 * depth_, 64);
    tile_load<5>(a + 16 * depth_, 2 * depth_);
    // A tile is loaded again as soon as its last product has been started.
    for (std::int64_t k = AmxBf16::kDepth; k <= depth_; k += AmxBf16::kDepth) {
      const std::int64_t next = k < depth_ ? k : 0;
      tile_multiply_bf16<0, 4, 6>();
      tile_multiply_bf16<1, 4, 7>();
      tile_load<4>(a + next, 2 * depth_);
      tile_multiply_bf16<2, 5, 6>();
      tile_load<6>(b + 16 * next, 64);
      tile_multiply_bf16<3, 5, 7>();
      tile_load<5>(a + 16 * depth_ + next, 2 * depth_);
      tile_load<7>(b + 16 * (depth_ + next), 64);
      between();
    }
  }

  // products [kKeyStep, heads_]
  void store_products(std::int64_t head) const {
    float* out = products_ + head;
    float* below = out + 16 * heads_;
    tile_store<0>(out, 4 * heads_);
    tile_store<1>(out + 16, 4 * heads_);
    tile_store<2>(below, 4 * heads_);
    tile_store<3>(below + 16, 4 * heads_);
  }

  // scores ← Σ max(0, product) · weight, of half of a step's keys, in their runs.
  void add_heads(const float* weights, int step, int half, float* scores) const {
    const int first = half * kSums;
    alignas(64) float totals[kSums];
    add_keys(weights, products_ + first * heads_, totals);
    scores += kStepRun * step + first / kStepRun * kRunKeys;
    for (int i = 0; i < kSums; i += kStepRun, scores += kRunKeys) {
      __builtin_memcpy(scores, totals + i, kStepRun * sizeof(float));
    }
  }

  // totals [kSums]. In this order the maximum keeps NaN.
  HWY_INLINE void add_keys(const float* weights, const float* products, float* totals) const {
    const F32Tag f32;
    F32Vector sums[kSums];
    for (int i = 0; i < kSums; ++i) {
      const F32Vector positive = hn::Max(hn::Zero(f32), hn::LoadU(f32, products + i * heads_));
      sums[i] = hn::Mul(positive, hn::LoadU(f32, weights));
    }
    for (std::int64_t head = kF32Lanes; head < heads_; head += kF32Lanes) {
      const F32Vector weight = hn::LoadU(f32, weights + head);
      for (int i = 0; i < kSums; ++i) {
        const F32Vector product = hn::LoadU(f32, products + i * heads_ + head);
        sums[i] = hn::MulAdd(hn::Max(hn::Zero(f32), product), weight, sums[i]);
      }
    }
    sum_lanes(sums, totals);
  }

  const IndexerShape& shape_;
  std::int64_t heads_;      // padded
  std::int64_t depth_;      // head_dim, padded
  std::uint16_t* queries_;  // B panels [tokens][heads / 16]
  float* query_scales_;     // [tokens, heads]
  std::uint16_t* keys_;     // [kSteps][kKeyStep, depth]; one token: two steps of them
  std::uint16_t* decoded_;  // [16, head_dim]
  float* products_;         // [kKeyStep, heads]
  std::int64_t used_ = 0;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
