// SPDX-License-Identifier: Apache-2.0
#include "ops/position_check.h"

#include <fmt/format.h>

namespace quire::ops {

void check_positions(const Arguments& check, const TensorView& position_ids,
                     std::int64_t num_rows) {
  for (std::int64_t section = 0; section < position_ids.shape[0]; ++section) {
    for (std::int64_t token = 0; token < position_ids.shape[1]; ++token) {
      const std::uint32_t position =
          position_ids.as<const std::uint32_t>()[position_ids.offset({section, token})];
      if (position < num_rows) continue;
      check.fail("position_ids", fmt::format("below the {} rows of freqs_cis", num_rows),
                 fmt::format("{} at [{}, {}]", position, section, token));
    }
  }
}

}  // namespace quire::ops
