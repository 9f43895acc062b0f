// SPDX-License-Identifier: Apache-2.0
#include "tools/device/cuda/stopwatch.h"

#include <algorithm>
#include <vector>

#include "cuda/runtime/status.h"
#include "tools/device/cuda/kernels.h"

namespace quire::tools {
namespace {

constexpr std::int64_t kFlushBytes = std::int64_t{256} << 20;
constexpr std::int64_t kCeilingBytes = std::int64_t{1} << 30;  // far past every L2
constexpr int kWarmUps = 3;
constexpr int kRuns = 15;

}  // namespace

Stopwatch::Stopwatch(const cuda::Stream& stream)
    : stream_(stream), written_(kFlushBytes), read_(kFlushBytes), sink_(256) {
  write_memory(read_.data(), kFlushBytes, stream.get());
}

void Stopwatch::flush(L2State l2) const {
  write_memory(written_.data(), kFlushBytes, stream_.get());
  if (l2 == L2State::dirty) return;
  read_memory(read_.data(), kFlushBytes, reinterpret_cast<std::uint32_t*>(sink_.data()),
              stream_.get());
}

Timing Stopwatch::time(const std::function<void()>& work, L2State l2) const {
  const cuda::Graph graph(stream_, work);
  const cuda::Event start;
  const cuda::Event stop;
  std::vector<double> times;
  for (int run = 0; run < kWarmUps + kRuns; ++run) {
    flush(l2);
    start.record(stream_);
    graph.replay(stream_);
    stop.record(stream_);
    const double elapsed = cuda::Event::microseconds(start, stop);
    if (run >= kWarmUps) times.push_back(elapsed);
  }
  stream_.wait();
  return summarize(std::move(times));
}

DeviceCeiling Stopwatch::measure_ceiling() const {
  const cuda::DeviceBuffer source(kCeilingBytes);
  const cuda::DeviceBuffer target(kCeilingBytes);
  write_memory(source.data(), kCeilingBytes, stream_.get());
  const auto bytes = static_cast<double>(kCeilingBytes);
  const Timing read = time(
      [&] {
        read_memory(source.data(), kCeilingBytes, reinterpret_cast<std::uint32_t*>(sink_.data()),
                    stream_.get());
      },
      L2State::dirty);
  const Timing copy =
      time([&] { copy_memory(target.data(), source.data(), kCeilingBytes, stream_.get()); },
           L2State::dirty);
  const Timing empty = time([&] { do_nothing(stream_.get()); }, L2State::dirty);
  return {.read_gbs = bytes / read.median * 1e-3,
          .copy_gbs = 2.0 * bytes / copy.median * 1e-3,
          .graph_us = empty.median};
}

Timing Stopwatch::time_copy(double bytes_moved, L2State l2) const {
  const auto bytes = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes_moved / 2.0));
  const cuda::DeviceBuffer source(bytes);
  const cuda::DeviceBuffer target(bytes);
  write_memory(source.data(), bytes, stream_.get());
  return time(
      [&] {
        cuda::check(cudaMemcpyAsync(target.data(), source.data(), static_cast<std::size_t>(bytes),
                                    cudaMemcpyDeviceToDevice, stream_.get()),
                    "cudaMemcpyAsync");
      },
      l2);
}

}  // namespace quire::tools
