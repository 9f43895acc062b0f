// SPDX-License-Identifier: Apache-2.0
#include "cpu/rows/row_segments.h"

#include <algorithm>

#include "quire/row_format.h"

namespace quire::cpu {

static_assert(RowSegments::kMost == RowFormat::kMaxParts);

RowSegments segments_of(const RowFormat& format, std::int64_t begin, std::int64_t end) {
  RowSegments segments{};
  std::int64_t start = 0;  // first column of the part
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[static_cast<std::size_t>(p)];
    const std::int64_t first = std::max(begin, start) - start;
    const std::int64_t last = std::min(end, start + part.width) - start;
    start += part.width;
    if (first >= last) continue;
    segments.items[segments.count++] = {
        .dtype = part.dtype,
        .count = static_cast<std::int32_t>(last - first),
        .offset_bytes =
            part.offset_bytes + static_cast<std::int32_t>(bytes_for(part.dtype, first))};
  }
  return segments;
}

}  // namespace quire::cpu
