// SPDX-License-Identifier: Apache-2.0
// How every form of the prefill kernel is started.
#pragma once

#include "cuda/common/prefill_attention/prefill_launch.h"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda {

template <PrefillConfig kConfig> LaunchShape prefill_shape(const PrefillLaunch& where) {
  return {.grid = dim3(static_cast<unsigned>(where.blocks)),
          .block = dim3(kConfig.threads()),
          .shared_bytes = sizeof(PrefillShared<kConfig>)};
}

}  // namespace quire::cuda
