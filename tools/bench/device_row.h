// SPDX-License-Identifier: Apache-2.0
// One measurement on a GPU as a line of JSON, with the card's ceilings measured in the same process
// beside it. `op`, `shape`, `us` and `us_min` are the keys of recorded peers.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/bench_row.h"
#include "tools/case/case.h"

namespace quire::tools {

// Microseconds of one thing, timed often.
struct Timing {
  double median = 0.0;
  double lowest = 0.0;
  int runs = 0;
};

Timing summarize(std::vector<double> microseconds);

// One thing behind either L2.
struct Timings {
  Timing dirty;  // after 256 MiB were written: the L2 holds lines that must go back first
  Timing clean;  // after a further 256 MiB were read
};

struct DeviceCeiling {
  double read_gbs = 0.0;
  double copy_gbs = 0.0;  // bytes read plus bytes written
  double graph_us = 0.0;  // a graph with one empty kernel
};

struct DeviceIdentity {
  std::string name;    // "NVIDIA H200"
  std::string driver;  // the CUDA version that it runs
  std::string commit;
};

struct DeviceRow {
  Peer label;
  std::vector<Peer> parts;
  std::string case_name;
  std::string kernel;
  double flops = 0.0;
  double bytes = 0.0;
  Timings own;
  // A copy that reads half as many bytes and writes the other half; of ops that only move data.
  std::optional<Timings> same_copy{};
};

nlohmann::json to_json(const DeviceRow& row, const DeviceCeiling& ceiling,
                       const DeviceIdentity& identity, const std::optional<PeerTime>& peer);

}  // namespace quire::tools
