// SPDX-License-Identifier: Apache-2.0
// copy_pages on the CPU: runs of bytes, shared among the threads.
#pragma once

#include "quire/ops/copy_pages.h"

namespace quire::cpu {

void copy_pages(const CopyPagesArgs& args, const Context& context);

}  // namespace quire::cpu
