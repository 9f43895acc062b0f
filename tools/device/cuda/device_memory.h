// SPDX-License-Identifier: Apache-2.0
// The twin of a problem's memory on a GPU: one allocation per buffer, its bytes at the same distance
// from a 256-byte boundary, its tensors rebased.
#pragma once

#include <vector>

#include "tools/case/memory.h"
#include "tools/case/relocation.h"
#include "tools/device/cuda/device_buffer.h"
#include "tools/device/cuda/stream.h"

namespace quire::tools {

class DeviceMemory {
 public:
  // Deferred buffers are filled here, once: upload() leaves them alone.
  DeviceMemory(Memory& host, const cuda::Stream& stream);

  // Every byte of every host buffer, guards included. They wait.
  void upload();
  void download();
  // Bytes that mean nothing, in every buffer that upload() would write.
  void poison();

  Relocation relocation() const;

 private:
  struct Twin {
    cuda::DeviceBuffer memory;
    std::int64_t shift = 0;  // device address = memory + shift + offset in the storage or data
  };

  Memory& host_;
  const cuda::Stream& stream_;
  std::vector<Twin> twins_;
};

}  // namespace quire::tools
