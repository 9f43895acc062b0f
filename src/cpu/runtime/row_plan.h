// SPDX-License-Identifier: Apache-2.0
// The lists of cpu/runtime/row_encoding.h as kernels see them: plain data.
#pragma once

#include <cstdint>

#include "quire/dtype.h"

namespace quire::cpu {

// Consecutive columns of one part that share a scale, or have none.
struct RowRun {
  std::int32_t column;  // logical, of the row
  std::int32_t count;
  std::int32_t offset_bytes;  // of the first element, from the start of the row
  DType dtype;
  std::int32_t granule;  // -1: unscaled
};

enum class GranuleScale : std::uint8_t { in_row, plane, given };  // given: the user's, in the plane

struct RowGranule {
  GranuleScale source;
  DType scale_dtype;
  bool has_wide;              // a column of more than 8 bits shares the scale
  bool has_zeros;             // of u4: a zero behind the scale, and the columns are one run
  std::int64_t scale_offset;  // bytes, from the start of the row or of the token's plane scales
};

struct RowPlan {
  const RowRun* runs;
  const RowGranule* granules;
  std::int32_t num_runs;
  std::int32_t num_granules;
  std::int32_t width;
};

}  // namespace quire::cpu
