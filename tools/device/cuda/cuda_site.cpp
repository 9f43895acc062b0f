// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "cuda/common/runtime/status.h"
#include "tools/device/cuda.h"
#include "tools/device/cuda/device_buffer.h"
#include "tools/device/cuda/stream.h"

namespace quire::tools {
namespace {

constexpr std::size_t kAlignment = 256;
// The demo's small tensors share chunks: asking the driver for each takes longer than an op.
constexpr std::size_t kChunkBytes = std::size_t{1} << 22;

// Chunks that both sides see; whole ones are sent to the GPU before an op.
class ManagedChunks final : public std::pmr::memory_resource {
 public:
  void send(const cuda::Stream& stream) const {
    for (const Chunk& chunk : chunks_) {
      cuda::check(cudaMemPrefetchAsync(chunk.data, chunk.bytes, {cudaMemLocationTypeDevice, 0}, 0,
                                       stream.get()),
                  "cudaMemPrefetchAsync");
    }
  }

 private:
  struct Chunk {
    void* data;
    std::size_t bytes;
  };

  void* do_allocate(std::size_t bytes, std::size_t) override {
    void* data = nullptr;
    cuda::check(cudaMallocManaged(&data, bytes), "cudaMallocManaged");
    chunks_.push_back({data, bytes});
    return data;
  }
  void do_deallocate(void* data, std::size_t, std::size_t) override {
    std::erase_if(chunks_, [&](const Chunk& chunk) { return chunk.data == data; });
    cudaFree(data);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::vector<Chunk> chunks_;
};

// Tensors at multiples of 256 bytes, as the driver's own allocations are, out of larger chunks.
class AlignedPool final : public std::pmr::memory_resource {
 public:
  explicit AlignedPool(std::pmr::memory_resource& chunks)
      : pool_({.max_blocks_per_chunk = 0, .largest_required_pool_block = kChunkBytes}, &chunks) {}

 private:
  static std::size_t whole(std::size_t bytes) {
    return (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  }
  void* do_allocate(std::size_t bytes, std::size_t) override {
    return pool_.allocate(whole(bytes), kAlignment);
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t) override {
    pool_.deallocate(data, whole(bytes), kAlignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::pmr::unsynchronized_pool_resource pool_;
};

class CudaSite final : public demo::Site {
 public:
  Device device() const override { return {.kind = DeviceKind::cuda, .index = 0}; }
  std::pmr::memory_resource& memory() override { return pool_; }
  void run(const Context& context, std::int64_t workspace_bytes,
           const std::function<void(const Context&)>& work) override {
    if (workspace_.bytes() < workspace_bytes) workspace_ = cuda::DeviceBuffer(workspace_bytes);
    Context there = context;
    there.stream = stream_.get();
    there.workspace = workspace_.data();
    there.workspace_bytes = workspace_.bytes();
    chunks_.send(stream_);
    work(there);
    stream_.wait();
  }

 private:
  cuda::Stream stream_;
  cuda::DeviceBuffer workspace_;
  ManagedChunks chunks_;
  AlignedPool pool_{chunks_};
};

}  // namespace

std::unique_ptr<demo::Site> make_cuda_site() {
  return std::make_unique<CudaSite>();
}

}  // namespace quire::tools
