// SPDX-License-Identifier: Apache-2.0
// Rows of queries and keys become fp32 in rows of whole vectors. Every key is multiplied with kRows queries at a time,
// which load it once.
#include "cpu/attention/row_decode.h"
#include "cpu/select_blocks/kernels.h"
#include "cpu/simd/carver.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

constexpr std::int64_t kRows = 4;

struct Scratch {
  Scratch(std::int64_t rows, std::int64_t width, std::byte* block,
          Contents contents = Contents::fresh)
      : stride((width + kF32Lanes - 1) / kF32Lanes * kF32Lanes) {
    Carver carver(block, contents);
    queries = carver.take<float>((rows + kRows - 1) / kRows * kRows * stride);
    keys = carver.take<float>(kScoredKeys * stride);
    used = carver.used();
  }

  std::int64_t stride;
  float* queries;  // [rows, stride], zeros past the width and in rows past the last
  float* keys;     // [kScoredKeys, stride]
  std::int64_t used;
};

std::int64_t scratch_bytes(std::int64_t rows, std::int64_t width) {
  return Scratch(rows, width, nullptr).used;
}

void clear(float* values, std::int64_t first, std::int64_t last) {
  for (std::int64_t i = first; i < last; ++i) values[i] = 0.0f;
}

void pack_queries(const KeyScoreItem& item, std::byte* block) {
  const Scratch scratch(item.rows, item.width, block);
  for (std::int64_t row = 0; row < item.rows; ++row) {
    float* to = scratch.queries + row * scratch.stride;
    widen_row(item.q_dtype, item.queries[row], item.width, to);
    clear(to, item.width, scratch.stride);
  }
  const std::int64_t padded = (item.rows + kRows - 1) / kRows * kRows;
  clear(scratch.queries, item.rows * scratch.stride, padded * scratch.stride);
}

// Of kRows queries with a key.
HWY_INLINE void multiply(const float* queries, const float* key, std::int64_t stride,
                         float (&scores)[kRows]) {
  const F32Tag f32;
  F32Vector sums[kRows];
  for (auto& sum : sums) sum = hn::Zero(f32);
  for (std::int64_t i = 0; i < stride; i += kF32Lanes) {
    const F32Vector k = hn::LoadU(f32, key + i);
    for (std::int64_t r = 0; r < kRows; ++r) {
      sums[r] = hn::MulAdd(hn::LoadU(f32, queries + r * stride + i), k, sums[r]);
    }
  }
  for (std::int64_t r = 0; r < kRows; ++r) scores[r] = hn::GetLane(hn::SumOfLanes(f32, sums[r]));
}

void score(const KeyScoreItem& item, const RowAddress* keys, int count, float* scores,
           std::byte* block) {
  const Scratch scratch(item.rows, item.width, block, Contents::kept);
  for (int key = 0; key < count; ++key) {
    if (keys[key].row == nullptr) continue;
    float* to = scratch.keys + key * scratch.stride;
    decode_row(item.plan, keys[key], item.width, to);
    clear(to, item.width, scratch.stride);
  }
  for (std::int64_t row = 0; row < item.rows; row += kRows) {
    const std::int64_t rows = item.rows - row < kRows ? item.rows - row : kRows;
    for (int key = 0; key < count; ++key) {
      if (keys[key].row == nullptr) continue;
      float products[kRows];
      multiply(scratch.queries + row * scratch.stride, scratch.keys + key * scratch.stride,
               scratch.stride, products);
      for (std::int64_t r = 0; r < rows; ++r) {
        scores[(row + r) * kScoredKeys + key] = products[r];
      }
    }
  }
}

constexpr KeyScoreKernels kKeyScoreKernels{
    .scratch_bytes = scratch_bytes, .pack_queries = pack_queries, .score = score};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const KeyScoreKernels& key_score_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kKeyScoreKernels;
}

}  // namespace quire::cpu
