// SPDX-License-Identifier: Apache-2.0
// rms_norm on every GPU: the new rows of K or V normalised in place. Starts kernels on the context's stream, allocates nothing
// and never waits.
#pragma once

#include <string>

#include "quire/ops/rms_norm.h"

namespace quire::cuda::any::rms_norm {

// Empty: any valid problem on a GPU of compute capability 8.0 or newer.
std::string refuse(const RmsNormProblem& problem);
void rms_norm(const RmsNormArgs& args, const Context& context);

}  // namespace quire::cuda::any::rms_norm
