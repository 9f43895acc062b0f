// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/device_row.h"

#include <algorithm>
#include <cmath>

namespace quire::tools {
namespace {

double rounded(double value) {
  return std::round(value * 1000.0) / 1000.0;
}

double rate(double amount, double microseconds) {
  return microseconds > 0.0 ? amount / microseconds : 0.0;
}

double percent_of(double part, double whole) {
  return whole > 0.0 ? rounded(100.0 * part / whole) : 0.0;
}

}  // namespace

Timing summarize(std::vector<double> microseconds) {
  if (microseconds.empty()) return {};
  std::sort(microseconds.begin(), microseconds.end());
  return {.median = microseconds[microseconds.size() / 2],
          .lowest = microseconds.front(),
          .runs = static_cast<int>(microseconds.size())};
}

nlohmann::json to_json(const DeviceRow& row, const DeviceCeiling& ceiling,
                       const DeviceIdentity& identity, const std::optional<PeerTime>& peer) {
  const auto& [dirty, clean] = row.own;
  const double gbs = rate(row.bytes, dirty.median) * 1e-3;
  const double clean_gbs = rate(row.bytes, clean.median) * 1e-3;
  nlohmann::json object{
      {"op", row.label.op},
      {"shape", row.label.shape},
      {"peer", "quire"},
      {"us", rounded(dirty.median)},
      {"us_min", rounded(dirty.lowest)},
      {"us_clean", rounded(clean.median)},
      {"us_clean_min", rounded(clean.lowest)},
      {"runs", dirty.runs},
      {"graph", true},
      {"case", row.case_name},
      {"kernel", row.kernel},
      {"tflops", rounded(rate(row.flops, dirty.median) * 1e-6)},
      {"gbs", rounded(gbs)},
      {"gbs_clean", rounded(clean_gbs)},
      {"percent_of_read", percent_of(gbs, ceiling.read_gbs)},
      {"percent_of_copy", percent_of(gbs, ceiling.copy_gbs)},
      {"percent_of_copy_clean", percent_of(clean_gbs, ceiling.copy_gbs)},
      {"ceiling_read_gbs", rounded(ceiling.read_gbs)},
      {"ceiling_copy_gbs", rounded(ceiling.copy_gbs)},
      {"ceiling_graph_us", rounded(ceiling.graph_us)},
      {"device", identity.name},
      {"driver", identity.driver},
      {"version", QUIRE_VERSION},
      {"commit", identity.commit},
  };
  if (row.same_copy.has_value()) {
    object["us_same_copy"] = rounded(row.same_copy->dirty.median);
    object["us_same_copy_clean"] = rounded(row.same_copy->clean.median);
    object["percent_of_same_copy"] = percent_of(row.same_copy->dirty.median, dirty.median);
    object["percent_of_same_copy_clean"] = percent_of(row.same_copy->clean.median, clean.median);
  }
  for (const Peer& part : row.parts) {
    object["parts"].push_back({{"op", part.op}, {"shape", part.shape}});
  }
  if (peer.has_value()) {
    object["against"] = {
        {"peer", peer->peer}, {"us", peer->us}, {"ratio", rounded(rate(dirty.median, peer->us))}};
  }
  return object;
}

}  // namespace quire::tools
