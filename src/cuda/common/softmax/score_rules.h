// SPDX-License-Identifier: Apache-2.0
// What a call does to scores beyond the product, as its kernels receive it.
#pragma once

#include <cstdint>

namespace quire {

struct FlashAttentionArgs;  // kernels include this file: what the op takes does not concern them

}  // namespace quire

namespace quire::cuda {

struct ScoreRules {
  float scale = 1.0F;
  float softcap = 0.0F;                 // 0: none
  const float* alibi_slopes = nullptr;  // [heads], or null
  std::int64_t alibi_stride = 0;
  const float* sinks = nullptr;  // [heads], or null
  std::int64_t sinks_stride = 0;
};

ScoreRules score_rules(const FlashAttentionArgs& args);

}  // namespace quire::cuda
