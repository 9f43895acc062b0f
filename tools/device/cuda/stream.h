// SPDX-License-Identifier: Apache-2.0
// Streams, events and captured graphs with owners. Ops take a caller's stream
// and keep none.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace quire::cuda {

// Work that is not ordered against the default stream.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  void wait() const;  // until all of it is done; throws what went wrong on the way

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream) const;
  // Microseconds between two recorded events; waits for the later one.
  static double microseconds(const Event& first, const Event& last);

 private:
  cudaEvent_t event_ = nullptr;
};

// What `work` puts on the stream, recorded once and replayed at will.
class Graph {
 public:
  Graph(const Stream& stream, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay(const Stream& stream) const;

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace quire::cuda
