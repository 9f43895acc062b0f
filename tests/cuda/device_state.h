// SPDX-License-Identifier: Apache-2.0
// Tensors on the GPU whose bytes a test compares and puts back: what an op may write.
#pragma once

#include <vector>

#include "cuda/runtime/device_values.h"
#include "cuda/runtime/status.h"
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

// Numbers into a u32 tensor of the device.
inline void upload(const TensorView& tensor, const std::vector<std::uint32_t>& values) {
  cuda::check(cudaMemcpy(tensor.data, values.data(), values.size() * sizeof(std::uint32_t),
                         cudaMemcpyHostToDevice),
              "cudaMemcpy");
}

}  // namespace quire::test
