// SPDX-License-Identifier: Apache-2.0
// One measurement, as a line of JSON. `op` and `shape` are the peers' strings where a peer has the
// case, so that two files of measurements join on them.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/ceiling.h"
#include "tools/case/case.h"

namespace quire::tools {

struct BenchRow {
  Peer label;
  std::vector<Peer> parts;  // peers that measured parts of the work
  std::string case_name;
  std::string kernel;
  std::string device = "cpu";
  double flops = 0.0;
  double bytes = 0.0;
  double us = 0.0;  // median
  double us_min = 0.0;
  int runs = 0;
  Products products = Products::f32;
  Ceiling ceiling{};  // of the kernel's target, the better of before and after

  Floor floor() const { return ceiling.floor(flops, bytes, products); }
  // Of the ceiling: floor time / median time.
  double percent() const { return us > 0.0 ? 100.0 * floor().seconds * 1e6 / us : 0.0; }

  double gbs() const { return us > 0.0 ? bytes / us * 1e-3 : 0.0; }
  double tflops() const { return us > 0.0 ? flops / us * 1e-6 : 0.0; }
};

// With machine, threads, commit, compiler and version.
nlohmann::json to_json(const BenchRow& row, int threads);

// The best time that somebody else has for a label.
struct PeerTime {
  std::string peer;
  double us = 0.0;
};

class PeerTimes {
 public:
  // A file with one JSON object per line, each with op, shape, us and perhaps peer. Throws
  // std::runtime_error.
  static PeerTimes load(const std::string& path);

  std::optional<PeerTime> find(const Peer& label) const;
  // The peer of the whole case, or the sum of its parts if every part was measured.
  std::optional<PeerTime> find(const BenchRow& row) const;

 private:
  std::map<std::pair<std::string, std::string>, PeerTime> best_;
};

}  // namespace quire::tools
