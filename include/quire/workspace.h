// SPDX-License-Identifier: Apache-2.0
// What a GPU op asks of Context::workspace: Plan::workspace_bytes on the device of its tensors, which nobody else
// uses until the op is done there. What it holds, before and after, means nothing.
#pragma once

#include <cstdint>

namespace quire {

inline constexpr std::int64_t kWorkspaceAlignment = 256;  // bytes, as every device allocator gives

}  // namespace quire
