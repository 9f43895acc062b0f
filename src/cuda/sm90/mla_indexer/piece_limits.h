// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace quire::cuda::sm90::mla_indexer {

inline constexpr int kMaxParts = 256;  // thread blocks whose pieces a merge can list

}  // namespace quire::cuda::sm90::mla_indexer
