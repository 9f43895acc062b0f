// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/status.h"
#include "tools/device/cuda.h"
#include "tools/device/cuda/device_memory.h"
#include "tools/device/cuda/workspace.h"

namespace quire::tools {
namespace {

class CudaRunner final : public Runner {
 public:
  explicit CudaRunner(Built& built)
      : memory_(built.memory, stream_),
        calls_(built.relocated(memory_.relocation())),
        packed_(calls_.packed_bytes) {
    pack();
  }

  Plan supports(const Context& context) override { return calls_.supports(context); }

  void run(const Context& context, std::vector<std::string>& faults) override {
    Workspace workspace(supports(context).workspace_bytes, stream_);
    memory_.upload();
    pack();
    workspace.poison(next_poison());
    calls_.run(workspace.in(context));
    finish(workspace, faults);
  }

  // Recorded over meaningless bytes: what a graph does must depend on what the memory holds when it
  // is replayed, never on what it held when it was recorded.
  bool replay(const Context& context, std::vector<std::string>& faults) override {
    Workspace workspace(supports(context).workspace_bytes, stream_);
    memory_.poison();
    const cuda::Graph graph(stream_, [&] { calls_.run(workspace.in(context)); });
    memory_.upload();
    pack();
    workspace.poison(next_poison());
    graph.replay(stream_);
    finish(workspace, faults);
    return true;
  }

 private:
  // Another one for every run: bit-identical results then do not come from scratch that was there.
  int next_poison() { return poisoned_++ % 2 == 0 ? 0xff : 0x3a; }

  void pack() {
    Context context;
    context.stream = stream_.get();
    if (calls_.pack) calls_.pack(packed_.data(), context);
  }

  void finish(const Workspace& workspace, std::vector<std::string>& faults) {
    stream_.wait();
    memory_.download();
    if (!workspace.is_intact()) faults.emplace_back("wrote past the workspace that plan asked for");
  }

  cuda::Stream stream_;
  DeviceMemory memory_;
  Calls calls_;
  cuda::DeviceBuffer packed_;
  int poisoned_ = 0;
};

}  // namespace

std::string why_no_cuda() {
  return cuda::num_devices() > 0 ? "" : "there is no NVIDIA GPU, or no driver for it";
}

std::unique_ptr<Runner> make_cuda_runner(Built& built) {
  return std::make_unique<CudaRunner>(built);
}

}  // namespace quire::tools
