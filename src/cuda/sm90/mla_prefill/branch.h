// SPDX-License-Identifier: Apache-2.0
// One call of mla_prefill: which problems the branch takes, how its scratch is cut, and the kernels that it starts.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/common/mask/visible_range.h"
#include "quire/ops/mla_prefill.h"

namespace quire::cuda::sm90::mla_prefill {

// Pure: tested without a GPU.
struct BranchShape {
  static constexpr std::int64_t kNope = 128;
  static constexpr std::int64_t kRope = 64;
  static constexpr std::int64_t kValue = 128;
  static constexpr std::int64_t kProjected = kNope + kValue;  // columns of a head
  static constexpr std::int64_t kScaleColumns = 128;          // latents that share a scale
  static constexpr std::int64_t kElementBytes = 2;            // of q's dtype
  static constexpr std::int64_t kSumBytes = 4;                // of what is kept between chunks

  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t latent = 0;
  std::int64_t batch = 0;
  std::int64_t rows = 0;          // of a chunk, as many as the page tables can fill
  std::int64_t max_chunks = 0;    // that a plan may use
  bool is_fp8 = false;            // the weight
  bool has_fp8_products = false;  // products of the attention may be of e4m3

  // Heads whose K and V stand in the scratch together; groups are of nearly equal size.
  std::int64_t group() const;
  std::int64_t groups() const { return heads == 0 ? 0 : (heads + group() - 1) / group(); }
  // A head's K and V stand together, as the weight-stationary projection writes them.
  bool heads_first() const { return is_fp8 && (latent + kScaleColumns - 1) / kScaleColumns == 4; }
  // K and V of e4m3 are made of those that the projection writes, which cannot write them itself.
  bool rounds_projected() const { return has_fp8_products && !heads_first(); }
  // Scales of a latent row, padded to a 16-byte load.
  std::int64_t scale_columns() const {
    return is_fp8 ? (latent + 4 * kScaleColumns - 1) / (4 * kScaleColumns) * 4 : 0;
  }
};

// Empty, or why the problem is not one of the branch's.
std::string refuse_shape(const MlaPrefillProblem& problem);
BranchShape branch_shape(const MlaPrefillProblem& problem);

std::int64_t branch_workspace_bytes(const BranchShape& shape);
// Starts the kernels of one call.
void run_branch(const MlaPrefillArgs& args, const BranchShape& shape, const VisibleRange& visible,
                const Context& context);

}  // namespace quire::cuda::sm90::mla_prefill
