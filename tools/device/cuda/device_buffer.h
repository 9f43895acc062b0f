// SPDX-License-Identifier: Apache-2.0
// Device memory with an owner. For tools and tests: ops allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cuda {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Uninitialised, aligned to 256 bytes, on the current device. 0 bytes: no memory.
  explicit DeviceBuffer(std::int64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace quire::cuda
