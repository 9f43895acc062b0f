// SPDX-License-Identifier: Apache-2.0
// How everything on a GPU is timed here: recorded in a graph, replayed with a cold L2, events around
// the replay, the median of 15 after 3 that do not count.
#pragma once

#include <cstdint>
#include <functional>

#include "cuda/runtime/device_buffer.h"
#include "cuda/runtime/stream.h"
#include "tools/bench/device_row.h"

namespace quire::tools {

// What the L2 holds when the clock starts: lines just written, or lines just read.
enum class L2State : std::uint8_t { dirty, clean };

class Stopwatch {
 public:
  explicit Stopwatch(const cuda::Stream& stream);

  // `work` puts something on the stream; it is called once, to be recorded.
  Timing time(const std::function<void()>& work, L2State l2) const;
  DeviceCeiling measure_ceiling() const;
  // cudaMemcpyAsync of half as many bytes: it reads and writes each of them.
  Timing time_copy(double bytes_moved, L2State l2) const;

 private:
  void flush(L2State l2) const;

  const cuda::Stream& stream_;
  cuda::DeviceBuffer written_;
  cuda::DeviceBuffer read_;
  cuda::DeviceBuffer sink_;
};

}  // namespace quire::tools
