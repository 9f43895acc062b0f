// SPDX-License-Identifier: Apache-2.0
// store on every GPU: rows, or ready-made scales, into the pages. Starts kernels on the context's stream, allocates nothing
// and never waits.
#pragma once

#include <string>

#include "quire/ops/store.h"

namespace quire::cuda::any::store {

// Empty: any valid problem on a GPU of compute capability 8.0 or newer.
std::string refuse(const StoreProblem& problem);
void store(const StoreArgs& args, const Context& context);
void store_scales(const StoreScalesArgs& args, const Context& context);

}  // namespace quire::cuda::any::store
