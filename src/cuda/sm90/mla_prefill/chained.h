// SPDX-License-Identifier: Apache-2.0
// The attention kernels of the branch are those of flash_attention for heads of 192 and 128, but for
// their ends: a chunk's rows go on where the chunk before left them.
#pragma once

#include "cuda/common/prefill_attention/config.h"

namespace quire::cuda::sm90::mla_prefill {

constexpr PrefillConfig chained(PrefillConfig config) {
  config.ends = Ends::chained;
  return config;
}

}  // namespace quire::cuda::sm90::mla_prefill
