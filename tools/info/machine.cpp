// SPDX-License-Identifier: Apache-2.0
#include "tools/info/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace quire::tools {
namespace {

// Only what attention kernels care about: /proc lists a hundred more.
constexpr std::array<std::string_view, 24> kFeatures{
    "sse4_2",   "avx",      "avx2",     "fma",         "f16c",        "avx512f",
    "avx512bw", "avx512vl", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_int8", "amx_bf16", "asimd",       "fphp",        "asimdhp",
    "asimddp",  "sve",      "sve2",     "i8mm",        "bf16",        "svei8mm"};

std::string trim(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The value of the first "key : value" line.
std::string find_value(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && trim(line.substr(0, colon)) == key) {
      return trim(line.substr(colon + 1));
    }
  }
  return "";
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string arm_part_name(const std::string& part) {
  if (part == "0xd40") return "Arm Neoverse V1";
  if (part == "0xd4f") return "Arm Neoverse V2";
  if (part == "0xd0c") return "Arm Neoverse N1";
  if (part == "0xd49") return "Arm Neoverse N2";
  return part.empty() ? "unknown CPU" : "Arm part " + part;
}

int count_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

// One "information" file per GPU, present wherever the driver is loaded; no CUDA call is needed to
// read it.
std::vector<std::string> find_gpus() {
  std::vector<std::string> gpus;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    const std::string model = find_value(read_text(entry.path() / "information"), "Model");
    if (!model.empty()) gpus.push_back(model);
  }
  return gpus;
}

}  // namespace

Machine parse_cpuinfo(const std::string& text) {
  Machine machine;
  machine.cpu = find_value(text, "model name");
  if (machine.cpu.empty()) machine.cpu = arm_part_name(find_value(text, "CPU part"));
  std::string flags = find_value(text, "flags");
  if (flags.empty()) flags = find_value(text, "Features");
  std::istringstream words(flags);
  for (std::string word; words >> word;) {
    if (std::find(kFeatures.begin(), kFeatures.end(), word) != kFeatures.end()) {
      machine.features.push_back(word);
    }
  }
  return machine;
}

Machine detect_machine() {
  Machine machine = parse_cpuinfo(read_text("/proc/cpuinfo"));
  utsname names{};
  machine.architecture = uname(&names) == 0 ? names.machine : "unknown";
  machine.cores = count_cores();
  machine.memory_bytes =
      static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  machine.gpus = find_gpus();
  return machine;
}

std::string Machine::describe() const {
  return fmt::format("{}, {} cores, {}", cpu, cores, architecture);
}

std::string compiler_name() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string build_commit() {
#if defined(QUIRE_COMMIT)
  return QUIRE_COMMIT;
#else
  return "unknown";
#endif
}

}  // namespace quire::tools
