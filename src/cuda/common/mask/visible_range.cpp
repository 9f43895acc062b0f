// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/mask/visible_range.h"

namespace quire::cuda {
namespace {

int clamp_size(std::int64_t size) {
  return static_cast<int>(std::min<std::int64_t>(size, VisibleRange::kUnbounded));
}

}  // namespace

VisibleRange visible_range(const MaskSummary& mask) {
  return {.ahead = clamp_size(mask.ahead),
          .window = clamp_size(mask.window),
          .chunk = clamp_size(mask.chunk)};
}

std::string refuse_range(const MaskSummary& mask) {
  if (mask.trees > 0) return "the mask has a tree";
  return mask.is_interval ? "" : "the mask shows more than one interval of keys";
}

}  // namespace quire::cuda
