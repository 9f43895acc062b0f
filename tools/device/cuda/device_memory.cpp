// SPDX-License-Identifier: Apache-2.0
#include "tools/device/cuda/device_memory.h"

#include "cuda/common/runtime/status.h"
#include "tools/device/cuda/kernels.h"

namespace quire::tools {
namespace {

std::int64_t storage_bytes(const Buffer& buffer) {
  return buffer.is_deferred() ? buffer.data_bytes
                              : static_cast<std::int64_t>(buffer.storage.size());
}

std::int64_t to_boundary(std::int64_t offset) {
  return (Memory::kAlignment - offset % Memory::kAlignment) % Memory::kAlignment;
}

}  // namespace

DeviceMemory::DeviceMemory(Memory& host, const cuda::Stream& stream)
    : host_(host), stream_(stream) {
  for (const Buffer& buffer : host.buffers()) {
    Twin twin;
    twin.shift = to_boundary(buffer.is_deferred() ? 0 : buffer.data_offset);
    twin.memory = cuda::DeviceBuffer(storage_bytes(buffer) + twin.shift);
    if (buffer.is_deferred()) {
      const auto period_bytes = static_cast<std::int64_t>(buffer.period.size());
      const cuda::DeviceBuffer period(period_bytes);
      cuda::check(cudaMemcpyAsync(period.data(), buffer.period.data(), buffer.period.size(),
                                  cudaMemcpyHostToDevice, stream.get()),
                  "cudaMemcpyAsync");
      fill_repeating(twin.memory.data() + twin.shift, buffer.data_bytes, period.data(),
                     period_bytes, stream.get());
      stream.wait();
    }
    twins_.push_back(std::move(twin));
  }
}

void DeviceMemory::upload() {
  for (std::size_t i = 0; i < twins_.size(); ++i) {
    const Buffer& buffer = host_.buffers()[i];
    if (buffer.is_deferred()) continue;
    cuda::check(cudaMemcpyAsync(twins_[i].memory.data() + twins_[i].shift, buffer.storage.data(),
                                buffer.storage.size(), cudaMemcpyHostToDevice, stream_.get()),
                "cudaMemcpyAsync");
  }
  stream_.wait();
}

void DeviceMemory::download() {
  for (std::size_t i = 0; i < twins_.size(); ++i) {
    Buffer& buffer = host_.buffers()[i];
    if (buffer.is_deferred()) continue;
    cuda::check(cudaMemcpyAsync(buffer.storage.data(), twins_[i].memory.data() + twins_[i].shift,
                                buffer.storage.size(), cudaMemcpyDeviceToHost, stream_.get()),
                "cudaMemcpyAsync");
  }
  stream_.wait();
}

void DeviceMemory::poison() {
  constexpr int kPoison = 0xa5;
  for (std::size_t i = 0; i < twins_.size(); ++i) {
    const Buffer& buffer = host_.buffers()[i];
    if (buffer.is_deferred()) continue;
    cuda::check(cudaMemsetAsync(twins_[i].memory.data() + twins_[i].shift, kPoison,
                                buffer.storage.size(), stream_.get()),
                "cudaMemsetAsync");
  }
  stream_.wait();
}

Relocation DeviceMemory::relocation() const {
  return [this](const TensorView& tensor) {
    TensorView there = tensor;
    const Place place = host_.place_of(tensor.data);
    const Buffer& buffer = host_.buffers()[place.buffer];
    const Twin& twin = twins_[place.buffer];
    const std::int64_t start = buffer.is_deferred() ? 0 : buffer.data_offset;
    there.data = twin.memory.data() + twin.shift + start + place.offset;
    there.device = {.kind = DeviceKind::cuda, .index = 0};
    return there;
  };
}

}  // namespace quire::tools
