// SPDX-License-Identifier: Apache-2.0
// The blocks of K, or of V, as one of their two loading warps sees them: copies into the next
// stage, and, where the cache is e4m3, its half of the rows made f16 when they have landed.
#pragma once

#include "cuda/common/prefill_attention/convert_block.cuh"
#include "cuda/common/prefill_attention/shared.cuh"

namespace quire::cuda {

// Whether copied blocks become f16.
enum class Conversion : std::uint8_t { none, to_f16 };

template <PrefillConfig kConfig, Conversion kConversion, int kSwizzleColumns, int kStages>
class StageLoad {
 public:
  using Stage = std::byte[kSwizzleColumns * PrefillShared<kConfig>::kSwizzleColumnBytes];

  __device__ StageLoad(Stage* stages, RingBarriers<kStages>& ring, EmptyBarrier* ready, int half)
      : stages_(stages), ring_(ring), ready_(ready), half_(half) {}

  // copy(stage, block, full): starts this warp's copies of a block.
  template <typename Copy> __device__ void load(const Copy& copy) {
    // While consumers still need the next stage, the block before it has time to be converted.
    if (kConversion == Conversion::to_f16 && is_pending_ && !is_empty()) convert();
    ring_.wait_empty(at_);
    copy(at_.stage, stages_[at_.stage], ring_.full[at_.stage]);
    convert();
    is_pending_ = true;
    at_.advance();
  }

  // Converts the block that has been copied last. Before waiting for anything that consumers do.
  __device__ void convert() {
    if constexpr (kConversion == Conversion::to_f16) {
      if (!is_pending_) return;
      is_pending_ = false;
      ring_.wait_full(convert_at_);
      convert_block<kConfig, kSwizzleColumns>(stages_[convert_at_.stage], half_);
      ready_[convert_at_.stage].arrive();
      convert_at_.advance();
    }
  }

 private:
  __device__ bool is_empty() const {
    return __shfl_sync(0xffffffff, ring_.empty[at_.stage].test_wait(at_.phase ^ 1), 0);
  }

  Stage* stages_;
  RingBarriers<kStages>& ring_;
  EmptyBarrier* ready_;
  const int half_;
  bool is_pending_ = false;
  RingPosition<kStages> at_;
  RingPosition<kStages> convert_at_;
};

}  // namespace quire::cuda
