// SPDX-License-Identifier: Apache-2.0
// How everything on a GPU is timed here: recorded in a graph, replayed with a cold L2, events around
// the replay, the median of 15 after 3 that do not count.
#pragma once

#include <cstdint>
#include <functional>

#include "tools/bench/device_row.h"
#include "tools/device/cuda/device_buffer.h"
#include "tools/device/cuda/stream.h"

namespace quire::tools {

// What the L2 holds when the clock starts: lines just written, or lines just read.
enum class L2State : std::uint8_t { dirty, clean };

class Stopwatch {
 public:
  explicit Stopwatch(const cuda::Stream& stream);

  // `work` puts something on the stream; it is called once for each L2, to be recorded.
  Timings time(const std::function<void()>& work) const;
  DeviceCeiling measure_ceiling() const;
  // The faster of cudaMemcpyAsync and the ceiling's own kernel, for each L2. Half as many bytes are
  // copied: each of them is read and written.
  Timings time_copy(std::int64_t bytes_moved) const;

 private:
  Timing time(const std::function<void()>& work, L2State l2) const;
  void flush(L2State l2) const;

  const cuda::Stream& stream_;
  cuda::DeviceBuffer written_;
  cuda::DeviceBuffer read_;
  cuda::DeviceBuffer sink_;
};

}  // namespace quire::tools
