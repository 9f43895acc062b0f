// SPDX-License-Identifier: Apache-2.0
#include "tools/device/cuda/workspace.h"

#include <algorithm>
#include <vector>

#include "cuda/common/runtime/status.h"

namespace quire::tools {
namespace {

constexpr std::int64_t kGuardBytes = 256;
constexpr int kGuard = 0x7e;

std::vector<std::byte> read_back(const std::byte* source, const cuda::Stream& stream) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(kGuardBytes));
  cuda::check(
      cudaMemcpyAsync(bytes.data(), source, bytes.size(), cudaMemcpyDeviceToHost, stream.get()),
      "cudaMemcpyAsync");
  stream.wait();
  return bytes;
}

}  // namespace

Workspace::Workspace(std::int64_t bytes, const cuda::Stream& stream)
    : bytes_(bytes), stream_(stream), memory_(bytes + 2 * kGuardBytes) {
  cuda::check(cudaMemsetAsync(memory_.data(), kGuard, static_cast<std::size_t>(memory_.bytes()),
                              stream.get()),
              "cudaMemsetAsync");
}

Context Workspace::in(Context context) const {
  context.stream = stream_.get();
  context.workspace = bytes_ > 0 ? memory_.data() + kGuardBytes : nullptr;
  context.workspace_bytes = bytes_;
  return context;
}

void Workspace::poison(int byte) const {
  cuda::check(cudaMemsetAsync(memory_.data() + kGuardBytes, byte, static_cast<std::size_t>(bytes_),
                              stream_.get()),
              "cudaMemsetAsync");
}

bool Workspace::is_intact() const {
  for (const std::byte* guard : {memory_.data(), memory_.data() + kGuardBytes + bytes_}) {
    const std::vector<std::byte> bytes = read_back(guard, stream_);
    const bool same = std::all_of(bytes.begin(), bytes.end(),
                                  [](std::byte byte) { return byte == std::byte{kGuard}; });
    if (!same) return false;
  }
  return true;
}

}  // namespace quire::tools
