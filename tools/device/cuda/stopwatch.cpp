// SPDX-License-Identifier: Apache-2.0
#include "tools/device/cuda/stopwatch.h"

#include <algorithm>
#include <vector>

#include "cuda/common/runtime/status.h"
#include "tools/device/cuda/kernels.h"

namespace quire::tools {
namespace {

constexpr std::int64_t kFlushBytes = std::int64_t{256} << 20;
constexpr std::int64_t kCeilingBytes = std::int64_t{1} << 30;  // far past every L2
constexpr int kWarmUps = 3;
constexpr int kRuns = 15;
constexpr std::int64_t kVectorBytes = 16;  // what a thread of copy_memory moves at a time

const Timing& faster(const Timing& a, const Timing& b) {
  return b.median < a.median ? b : a;
}

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

Timings Stopwatch::time(const std::function<void()>& work) const {
  return {.dirty = time(work, L2State::dirty), .clean = time(work, L2State::clean)};
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

Timings Stopwatch::time_copy(std::int64_t bytes_moved) const {
  const std::int64_t vectors = bytes_moved / 2 / kVectorBytes;
  const std::int64_t bytes = std::max<std::int64_t>(1, vectors) * kVectorBytes;
  const cuda::DeviceBuffer source(bytes);
  const cuda::DeviceBuffer target(bytes);
  write_memory(source.data(), bytes, stream_.get());
  const Timings driver = time([&] {
    cuda::check(cudaMemcpyAsync(target.data(), source.data(), static_cast<std::size_t>(bytes),
                                cudaMemcpyDeviceToDevice, stream_.get()),
                "cudaMemcpyAsync");
  });
  const Timings kernel =
      time([&] { copy_memory(target.data(), source.data(), bytes, stream_.get()); });
  return {.dirty = faster(driver.dirty, kernel.dirty), .clean = faster(driver.clean, kernel.clean)};
}

}  // namespace quire::tools
