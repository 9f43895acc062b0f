// SPDX-License-Identifier: Apache-2.0
// The tensors of a problem on GPU 0: the same bytes, shapes and strides. bring_back() copies every
// byte over its original.
#pragma once

#include <vector>

#include "cuda/common/runtime/status.h"
#include "quire/ops/flash_attention.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "quire/ops/mla_indexer.h"
#include "tools/device/cuda/device_buffer.h"

namespace quire::test {

class DeviceTwin {
 public:
  TensorView move(const TensorView& host) {
    const std::int64_t bytes = extent_bytes(host);
    copies_.push_back({host.data, cuda::DeviceBuffer(kGap + bytes)});
    // Alignment and misalignment survive the journey.
    const auto offset =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(host.data) % kGap);
    Copy& copy = copies_.back();
    copy.device = copy.buffer.data() + offset;
    copy.bytes = bytes;
    cuda::check(
        cudaMemcpy(copy.device, host.data, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice),
        "cudaMemcpy");
    TensorView view = host;
    view.data = copy.device;
    view.device = {.kind = DeviceKind::cuda, .index = 0};
    return view;
  }

  FusedQkvArgs move(FusedQkvArgs args) {
    for (TensorView* view : {&args.x, &args.row_offsets, &args.weight.data, &args.cache.blocks,
                             &args.cache.cache_lengths, &args.cache.page_table, &args.out}) {
      *view = move(*view);
    }
    for (std::optional<TensorView>* view :
         {&args.weight.scale, &args.weight.zeros, &args.weight.perm, &args.cache.scales,
          &args.cache.scales_page_table, &args.bias, &args.input_scale}) {
      if (view->has_value()) *view = move(**view);
    }
    return args;
  }

  MlaIndexerArgs move(MlaIndexerArgs args) {
    for (TensorView* view : {&args.q, &args.q_scale, &args.row_offsets, &args.cache.blocks,
                             &args.cache.cache_lengths, &args.cache.page_table, &args.out}) {
      *view = move(*view);
    }
    for (std::optional<TensorView>* view : {&args.cache.scales, &args.cache.scales_page_table}) {
      if (view->has_value()) *view = move(**view);
    }
    return args;
  }

  FlashAttentionArgs move(FlashAttentionArgs args) {
    for (TensorView* view : {&args.q, &args.row_offsets, &args.cache.blocks,
                             &args.cache.cache_lengths, &args.cache.page_table, &args.out}) {
      *view = move(*view);
    }
    if (args.lse.has_value()) args.lse = move(*args.lse);
    return args;
  }

  void bring_back() const {
    for (const Copy& copy : copies_) {
      cuda::check(cudaMemcpy(copy.host, copy.device, static_cast<std::size_t>(copy.bytes),
                             cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
    }
  }

 private:
  static constexpr std::int64_t kGap = 256;

  struct Copy {
    void* host;
    cuda::DeviceBuffer buffer;
    std::byte* device = nullptr;
    std::int64_t bytes = 0;
  };

  // From the first to the last element, whatever lies between them.
  static std::int64_t extent_bytes(const TensorView& view) {
    std::int64_t last = 0;
    for (int dim = 0; dim < view.rank; ++dim) {
      if (view.shape[dim] == 0) return 0;
      last += (view.shape[dim] - 1) * view.strides[dim];
    }
    return bytes_for(view.dtype, last + 1);
  }

  std::vector<Copy> copies_;
};

}  // namespace quire::test
