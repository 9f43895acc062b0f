// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_row.h"

#include <fmt/format.h>

#include <cmath>
#include <sstream>
#include <stdexcept>

#include "tools/info/machine.h"
#include "tools/text_file.h"

namespace quire::tools {
namespace {

constexpr std::int64_t kMaxPeerBytes = std::int64_t{64} << 20;
constexpr int kMaxPeerNesting = 16;

double rounded(double value) {
  return std::round(value * 1000.0) / 1000.0;
}

}  // namespace

nlohmann::json to_json(const BenchRow& row, int threads) {
  nlohmann::json object{
      {"op", row.label.op},
      {"shape", row.label.shape},
      {"peer", "quire"},
      {"us", rounded(row.us)},
      {"us_min", rounded(row.us_min)},
      {"runs", row.runs},
      {"case", row.case_name},
      {"kernel", row.kernel},
      {"device", row.device},
      {"tflops", row.tflops()},
      {"gbs", row.gbs()},
      {"percent_of_ceiling", rounded(row.percent())},
      {"ceiling", row.floor().what},
      {"ceiling_gbs", rounded(row.ceiling.read_gbs)},
      {"ceiling_gflops", rounded(row.ceiling.gflops(row.products))},
      {"machine", detect_machine().describe()},
      {"threads", threads},
      {"version", QUIRE_VERSION},
      {"commit", build_commit()},
      {"compiler", compiler_name()},
  };
  for (const Peer& part : row.parts) {
    object["parts"].push_back({{"op", part.op}, {"shape", part.shape}});
  }
  return object;
}

PeerTimes PeerTimes::load(const std::string& path) {
  std::istringstream file(read_text_file(path, kMaxPeerBytes));
  PeerTimes times;
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      const nlohmann::json row = parse_json(line, kMaxPeerNesting);
      const std::pair key(row.at("op").get<std::string>(), row.at("shape").get<std::string>());
      if (!row.contains("us")) continue;  // a ceiling, not a time
      const PeerTime time{.peer = row.value("peer", "peer"), .us = row.at("us").get<double>()};
      const auto [place, is_new] = times.best_.try_emplace(key, time);
      if (!is_new && time.us < place->second.us) place->second = time;
    } catch (const std::exception& problem) {
      throw std::runtime_error(fmt::format("{}:{}: {}", path, number, problem.what()));
    }
  }
  return times;
}

std::optional<PeerTime> PeerTimes::find(const Peer& label) const {
  const auto found = best_.find({label.op, label.shape});
  if (found == best_.end()) return std::nullopt;
  return found->second;
}

std::optional<PeerTime> PeerTimes::find(const BenchRow& row) const {
  if (const auto whole = find(row.label)) return whole;
  if (row.parts.empty()) return std::nullopt;
  PeerTime sum;
  for (const Peer& part : row.parts) {
    const std::optional<PeerTime> time = find(part);
    if (!time.has_value()) return std::nullopt;
    sum.us += time->us;
    sum.peer += (sum.peer.empty() ? "" : " + ") + time->peer;
  }
  return sum;
}

}  // namespace quire::tools
