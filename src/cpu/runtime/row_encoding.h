// SPDX-License-Identifier: Apache-2.0
// How the f32 values of one cache row become bytes: quire/row_format.h flattened into lists a
// kernel can walk. The rules are those of the reference's row codec: a granule is the columns that
// share a scale; a dynamic scale is amax / max_finite over its columns of 8 bits or fewer, rounded to the
// scale's dtype before anything is divided by it; 0 becomes 1 where wider columns share it. Granules of u4
// have a zero besides (cpu/simd/rows_zeros.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/runtime/row_plan.h"
#include "quire/row_layout.h"

namespace quire::cpu {

class RowEncoding {
 public:
  explicit RowEncoding(const RowLayout& layout);
  RowPlan plan() const {
    return {.runs = runs_.data(),
            .granules = granules_.data(),
            .num_runs = static_cast<std::int32_t>(runs_.size()),
            .num_granules = static_cast<std::int32_t>(granules_.size()),
            .width = width_};
  }

 private:
  std::int32_t granule_of(const RowLayout& layout, std::int32_t part, std::int32_t column,
                          std::int32_t index);

  std::vector<RowRun> runs_;
  std::vector<RowGranule> granules_;
  std::vector<std::int64_t> keys_;  // of granules_: part and slot, plane slots as part -1
  std::int32_t width_ = 0;
};

}  // namespace quire::cpu
