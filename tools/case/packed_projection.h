// SPDX-License-Identifier: Apache-2.0
// A projection whose weight is packed before it runs.
#pragma once

#include "quire/ops/fused_qkv_matmul.h"
#include "quire/ops/linear.h"
#include "tools/case/built.h"

namespace quire::tools {

// Makes the host's calls of `built` pack the weight of `args`, once for each kernel that is asked
// for, and those elsewhere pack it there, if a kernel of that device reads it packed; the reference
// keeps the plain one.
template <typename Args>
void pack_before_running(Built& built, const Args& args, void (*op)(const Args&, const Context&));

extern template void pack_before_running(Built&, const FusedQkvArgs&,
                                         void (*)(const FusedQkvArgs&, const Context&));
extern template void pack_before_running(Built&, const LinearArgs&,
                                         void (*)(const LinearArgs&, const Context&));

}  // namespace quire::tools
