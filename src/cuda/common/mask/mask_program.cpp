// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/mask/mask_program.h"

#include <fmt/format.h>

#include <algorithm>

#include "quire/error.h"

namespace quire::cuda {
namespace {

// Past every position, and far enough from the end of int64 that kernels may add positions to it.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 40;

MaskStep step_of(const Mask::Node& node) {
  MaskStep step;
  step.kind = node.kind;
  if (node.kind == MaskKind::tree) {
    step.tree = {.data = node.bits.as<const std::uint8_t>(),
                 .stride = node.bits.strides[0],
                 .columns = node.bits.shape[1]};
  } else if (node.kind == MaskKind::key_intervals) {
    step.intervals = token_intervals(node);
  } else {
    step.size = std::min(node.size, kLargestSize);
  }
  return step;
}

}  // namespace

std::string refuse_mask(const MaskSummary& mask) {
  constexpr int kMostMasks = MaskProgram::kMaxSteps / 2 + 1;
  if (mask.masks <= kMostMasks) return "";
  return fmt::format("the mask joins {} masks, at most {} are taken", mask.masks, kMostMasks);
}

MaskProgram mask_program(const Mask& mask) {
  const auto& nodes = mask.nodes();
  if (nodes.size() > MaskProgram::kMaxSteps) {
    throw Error(ErrorCode::unsupported, "mask", "mask",
                fmt::format("at most {} nodes on cuda", MaskProgram::kMaxSteps),
                std::to_string(nodes.size()));
  }
  MaskProgram program;
  for (const Mask::Node& node : nodes) program.steps[program.num_steps++] = step_of(node);
  return program;
}

}  // namespace quire::cuda
