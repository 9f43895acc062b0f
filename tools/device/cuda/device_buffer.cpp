// SPDX-License-Identifier: Apache-2.0
#include "tools/device/cuda/device_buffer.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "cuda/common/runtime/status.h"

namespace quire::cuda {

DeviceBuffer::DeviceBuffer(std::int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "cudaMalloc");
  data_ = static_cast<std::byte*>(memory);
}

// A destructor cannot throw; what goes wrong here went wrong in a call before, which did.
DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) static_cast<void>(cudaFree(data_));
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace quire::cuda
