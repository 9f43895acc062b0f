// SPDX-License-Identifier: Apache-2.0
// Tensors on the GPU whose bytes a test compares and puts back: what an op may write.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "cuda/common/runtime/device_values.h"
#include "cuda/common/runtime/status.h"
#include "quire/tensor_view.h"

namespace quire::test {

class DeviceState {
 public:
  using Bytes = std::vector<std::vector<std::byte>>;

  explicit DeviceState(std::vector<TensorView> tensors)
      : tensors_(std::move(tensors)), start_(read()) {}

  // Waits for everything on the device.
  Bytes read() const {
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    Bytes bytes;
    for (const TensorView& tensor : tensors_) bytes.push_back(cuda::download(tensor, nullptr));
    return bytes;
  }
  const Bytes& start() const { return start_; }
  void restore() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      cuda::check(
          cudaMemcpy(tensors_[i].data, start_[i].data(), start_[i].size(), cudaMemcpyHostToDevice),
          "cudaMemcpy");
    }
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

 private:
  std::vector<TensorView> tensors_;
  Bytes start_;
};

// A recorded op and a fresh call leave the same bytes, other ones for every one of `lengths`, which
// `set` writes to the device. The op's outputs are `state`'s.
template <typename Lengths, typename Set, typename Run, typename Replay>
void expect_replays_are_fresh_calls(const DeviceState& state, const Lengths& lengths,
                                    const Set& set, const Run& run, const Replay& replay) {
  std::vector<DeviceState::Bytes> results;
  for (const auto& other_lengths : lengths) {
    set(other_lengths);
    run();
    const DeviceState::Bytes fresh = state.read();
    state.restore();
    replay();
    EXPECT_TRUE(state.read() == fresh);
    EXPECT_FALSE(fresh == state.start());
    for (const DeviceState::Bytes& other : results) EXPECT_FALSE(fresh == other);
    results.push_back(fresh);
    state.restore();
  }
}

// Numbers into a u32 tensor of the device. cudaMemcpy returns when they have left pageable memory, which is
// before they have arrived: a stream that does not wait for the legacy one read the old ones on a busy GPU.
inline void upload(const TensorView& tensor, const std::vector<std::uint32_t>& values) {
  cuda::check(cudaMemcpy(tensor.data, values.data(), values.size() * sizeof(std::uint32_t),
                         cudaMemcpyHostToDevice),
              "cudaMemcpy");
  cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

}  // namespace quire::test
