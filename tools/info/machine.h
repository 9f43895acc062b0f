// SPDX-License-Identifier: Apache-2.0
// What this machine is, as far as an unprivileged process can ask.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire::tools {

struct Machine {
  std::string cpu;           // "AMD EPYC 9B14"
  std::string architecture;  // "x86_64", "aarch64"
  std::vector<std::string>
      features;   // the ISA extensions a kernel could use, as /proc/cpuinfo spells them
  int cores = 1;  // that this process may run on
  std::int64_t memory_bytes = 0;
  std::vector<std::string> gpus;  // as the NVIDIA driver names them

  std::string describe() const;  // one line
};

Machine detect_machine();

// "model name" and "flags" of a /proc/cpuinfo text; on aarch64 its "CPU part" and "Features".
Machine parse_cpuinfo(const std::string& text);

std::string compiler_name();  // "GCC 12.2.0"
std::string build_commit();   // of the source tree when it was configured, or "unknown"

}  // namespace quire::tools
