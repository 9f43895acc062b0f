// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/ceiling.h"

#include <fmt/format.h>

#include <algorithm>

#include "quire/cpu_ceiling.h"

namespace quire::tools {

double Ceiling::gflops(Products products) const {
  switch (products) {
    case Products::f32:
      return f32_gflops;
    case Products::bf16:
      return bf16_gflops;
    case Products::int8:
      return int8_gops;
  }
  return 0.0;
}

Floor Ceiling::floor(double flops, double bytes, Products products) const {
  const double rate = gflops(products);
  const double compute = rate > 0.0 ? flops / (rate * 1e9) : 0.0;
  const double memory = read_gbs > 0.0 ? bytes / (read_gbs * 1e9) : 0.0;
  if (memory >= compute) return {.seconds = memory, .what = "read"};
  return {.seconds = compute, .what = fmt::format("{} {}", target, name(products))};
}

std::string target_of(const std::string& kernel) {
  const std::string_view prefix = "cpu/";
  if (!kernel.starts_with(prefix)) return "";
  const std::size_t end = kernel.find('/', prefix.size());
  return end == std::string::npos ? "" : kernel.substr(prefix.size(), end - prefix.size());
}

Ceiling measure_ceiling(const std::string& target, int threads) {
  const CpuCeiling measured = measure_cpu_ceiling(threads, target);
  return {.target = measured.target,
          .read_gbs = measured.read_gbs,
          .f32_gflops = measured.f32_gflops,
          .bf16_gflops = measured.bf16_gflops,
          .int8_gops = measured.int8_gops};
}

Ceiling best_of(const Ceiling& left, const Ceiling& right) {
  return {.target = left.target,
          .read_gbs = std::max(left.read_gbs, right.read_gbs),
          .f32_gflops = std::max(left.f32_gflops, right.f32_gflops),
          .bf16_gflops = std::max(left.bf16_gflops, right.bf16_gflops),
          .int8_gops = std::max(left.int8_gops, right.int8_gops)};
}

}  // namespace quire::tools
