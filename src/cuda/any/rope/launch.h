// SPDX-License-Identifier: Apache-2.0
// rope on every GPU: q into `out`, the cached keys in place. Starts kernels on the context's stream, allocates nothing
// and never waits.
#pragma once

#include <string>

#include "quire/ops/rope.h"

namespace quire::cuda::any::rope {

// Empty: any valid problem on a GPU of compute capability 8.0 or newer.
std::string refuse(const RopeProblem& problem);
void rope(const RopeArgs& args, const Context& context);

}  // namespace quire::cuda::any::rope
