// SPDX-License-Identifier: Apache-2.0
#include "quire/cpu_ceiling.h"

#include "cpu/runtime/probe.h"
#include "cpu/runtime/target.h"
#include "cpu/runtime/thread_pool.h"
#include "ops/dispatch.h"
#include "quire/error.h"

namespace quire {
namespace {

cpu::Target choose_target(std::string_view wanted) {
  std::string known;
  for (const cpu::Target target : cpu::compiled_targets()) {
    if (!cpu::why_not(target).empty()) continue;
    if (wanted.empty() || cpu::name(target) == wanted) return target;
    known += (known.empty() ? "" : ", ") + std::string(cpu::name(target));
  }
  throw Error(ErrorCode::invalid_value, "measure_cpu_ceiling", "target",
              known.empty() ? "one that this machine has" : "one of " + known, std::string(wanted));
}

}  // namespace

int num_cores() {
  return cpu::num_cores();
}

CpuCeiling measure_cpu_ceiling(int num_threads, std::string_view target) {
  ops::check_context("measure_cpu_ceiling", {.num_threads = num_threads});
  const cpu::Target chosen = choose_target(target);
  const int threads = num_threads > 0 ? num_threads : cpu::num_cores();
  return {.target = std::string(cpu::name(chosen)),
          .num_threads = threads,
          .read_gbs = cpu::probe_read_gbs(threads),
          .f32_gflops = cpu::probe_gflops(chosen, DType::f32, threads),
          .bf16_gflops = cpu::probe_gflops(chosen, DType::bf16, threads),
          .int8_gops = cpu::probe_gflops(chosen, DType::i8, threads)};
}

}  // namespace quire
