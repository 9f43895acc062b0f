// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace quire::cuda::hopper {

inline constexpr int kMaxParts = 256;  // thread blocks whose pieces a merge can list

}  // namespace quire::cuda::hopper
