// SPDX-License-Identifier: Apache-2.0
// Scratch of exactly the planned size, with guards on both sides.
#pragma once

#include <cstdint>

#include "quire/context.h"
#include "tools/device/cuda/device_buffer.h"
#include "tools/device/cuda/stream.h"

namespace quire::tools {

class Workspace {
 public:
  Workspace(std::int64_t bytes, const cuda::Stream& stream);

  // The context with this scratch and this stream.
  Context in(Context context) const;
  void poison(int byte) const;
  bool is_intact() const;  // the guards; waits

 private:
  std::int64_t bytes_;
  const cuda::Stream& stream_;
  cuda::DeviceBuffer memory_;
};

}  // namespace quire::tools
