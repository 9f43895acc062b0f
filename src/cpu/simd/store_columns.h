// SPDX-License-Identifier: Apache-2.0
// Finished columns of one token, to the query tensor and into the pages.
#pragma once

#include "cpu/fused_qkv_matmul/job.h"
#include "cpu/simd/encode_row.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline float input_scale(const InputView& x, std::int64_t token, std::int64_t k) {
  constexpr std::int64_t kBlock = 128;
  if (x.scale == nullptr) return 1.0f;
  return x.scale[token * x.scale_t_stride + k / kBlock * x.scale_k_stride];
}

// values: columns [first, last) of Y, which never cut a cache row; used up.
inline void store_columns(const MatmulJob& job, std::int64_t token, std::int64_t first,
                          std::int64_t last, float* values, float* scales) {
  if (first < job.q_dim) {
    const std::int64_t end = last < job.q_dim ? last : job.q_dim;
    std::byte* out = job.out + token * job.out_stride + bytes_for(job.out_dtype, first);
    narrow_row(job.out_dtype, values, end - first, out);
  }
  for (int b = 0; b < job.num_bands; ++b) {
    const CacheBand& band = job.bands[b];
    const RowAddress& start = band.rows[token];
    for (std::int64_t head = 0; head < band.heads.count; ++head) {
      const std::int64_t column = band.first_column + head * band.plan.width;
      if (column < first || column >= last || start.row == nullptr) continue;
      std::byte* plane = start.plane;
      if (plane != nullptr) plane += head * band.heads.plane_stride_bytes;
      encode_row(band.plan, values + (column - first),
                 start.row + head * band.heads.row_stride_bytes, plane, scales);
    }
  }
}

// The same of sums [first, last) that the bias is still to be added to.
inline void store_sums(const MatmulJob& job, std::int64_t token, std::int64_t first,
                       std::int64_t last, float* sums, float* cache_scales) {
  if (job.bias != nullptr) {
    for (std::int64_t n = first; n < last; ++n) sums[n - first] += job.bias[n];
  }
  store_columns(job, token, first, last, sums, cache_scales);
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
