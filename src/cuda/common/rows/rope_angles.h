// SPDX-License-Identifier: Apache-2.0
// Where the cosines and sines of a token's pairs stand.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/dtype.h"
#include "quire/host_device.h"

namespace quire::cuda {

inline constexpr int kMaxRopeSections = 32;

// Rows of freqs_cis, f32, f16 or bf16 [max_pos, rope_dim].
struct RopeAngles {
  const std::byte* freqs;
  DType dtype;
  std::int64_t row_stride;  // elements
  std::int64_t column_stride;
  std::int64_t max_pos;
  const std::uint32_t* position_ids;  // u32 [sections, tokens], or null: the cache positions
  std::int64_t section_stride;
  std::int64_t token_stride;
  int num_sections;
  int section_ends[kMaxRopeSections];  // one past the last pair of each
  float sine_sign;                     // -1: by the negative angles

  // f32 with one aligned row for all pairs of a token: 16-byte loads.
  QUIRE_HOST_DEVICE bool stand_in_rows() const {
    return dtype == DType::f32 && column_stride == 1 && num_sections == 0 && row_stride % 4 == 0 &&
           reinterpret_cast<std::uintptr_t>(freqs) % 16 == 0;
  }
};

}  // namespace quire::cuda
