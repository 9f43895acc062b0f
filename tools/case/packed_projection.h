// SPDX-License-Identifier: Apache-2.0
// A projection whose weight is packed before it runs.
#pragma once

#include "quire/ops/fused_qkv_matmul.h"
#include "tools/case/built.h"

namespace quire::tools {

// Makes the host's calls of `built` pack the weight of `args`, once for each kernel that is asked
// for, and those elsewhere pack it there, if a kernel of that device reads it packed; the reference
// keeps the plain one.
void pack_before_running(Built& built, const FusedQkvArgs& args);

}  // namespace quire::tools
