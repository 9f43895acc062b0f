// SPDX-License-Identifier: Apache-2.0
// A range of logical columns of a cache row as the stretches of one dtype that it consists of.
#pragma once

#include <cstdint>

#include "quire/dtype.h"

namespace quire {
struct RowFormat;
}

namespace quire::cpu {

struct RowSegment {
  DType dtype;
  std::int32_t count;         // columns
  std::int32_t offset_bytes;  // of the first one, from the start of the row
};

struct RowSegments {
  static constexpr int kMost = 4;  // RowFormat::kMaxParts

  RowSegment items[kMost];  // in column order
  std::int32_t count;
};

// Columns [begin, end) of a row.
RowSegments segments_of(const RowFormat& format, std::int64_t begin, std::int64_t end);

}  // namespace quire::cpu
