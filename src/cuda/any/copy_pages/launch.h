// SPDX-License-Identifier: Apache-2.0
// copy_pages on every GPU: whole pages onto others, the pairs read on the device. Starts kernels on
// the context's stream, allocates nothing and never waits.
#pragma once

#include <string>

#include "quire/ops/copy_pages.h"

namespace quire::cuda::any::copy_pages {

// Empty: any valid problem on a GPU of compute capability 8.0 or newer.
std::string refuse(const CopyPagesProblem& problem);
void copy_pages(const CopyPagesArgs& args, const Context& context);

}  // namespace quire::cuda::any::copy_pages
