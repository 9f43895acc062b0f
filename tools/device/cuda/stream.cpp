// SPDX-License-Identifier: Apache-2.0
#include "tools/device/cuda/stream.h"

#include "cuda/common/runtime/status.h"

namespace quire::cuda {

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

Stream::~Stream() {
  static_cast<void>(cudaStreamDestroy(stream_));
}

void Stream::wait() const {
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

Event::Event() {
  check(cudaEventCreate(&event_), "cudaEventCreate");
}

Event::~Event() {
  static_cast<void>(cudaEventDestroy(event_));
}

void Event::record(const Stream& stream) const {
  check(cudaEventRecord(event_, stream.get()), "cudaEventRecord");
}

double Event::microseconds(const Event& first, const Event& last) {
  check(cudaEventSynchronize(last.event_), "cudaEventSynchronize");
  float milliseconds = 0.0f;
  check(cudaEventElapsedTime(&milliseconds, first.event_, last.event_), "cudaEventElapsedTime");
  return 1e3 * static_cast<double>(milliseconds);
}

Graph::Graph(const Stream& stream, const std::function<void()>& work) {
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  cudaGraph_t recorded = nullptr;
  try {
    work();
  } catch (...) {
    // The stream must leave capture mode, whatever became of the recording.
    static_cast<void>(cudaStreamEndCapture(stream.get(), &recorded));
    if (recorded != nullptr) static_cast<void>(cudaGraphDestroy(recorded));
    throw;
  }
  check(cudaStreamEndCapture(stream.get(), &recorded), "cudaStreamEndCapture");
  const cudaError_t status = cudaGraphInstantiate(&graph_, recorded, 0);
  static_cast<void>(cudaGraphDestroy(recorded));
  check(status, "cudaGraphInstantiate");
}

Graph::~Graph() {
  if (graph_ != nullptr) static_cast<void>(cudaGraphExecDestroy(graph_));
}

void Graph::replay(const Stream& stream) const {
  check(cudaGraphLaunch(graph_, stream.get()), "cudaGraphLaunch");
}

}  // namespace quire::cuda
