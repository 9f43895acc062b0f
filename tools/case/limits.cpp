// SPDX-License-Identifier: Apache-2.0
#include "tools/case/limits.h"

#include <unistd.h>

namespace quire::tools {
namespace {

std::int64_t machine_bytes() {
  return std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
}

}  // namespace

std::int64_t max_case_bytes() {
  return machine_bytes() / 2;
}

// The problem, its two twins, and two snapshots of its memory.
std::int64_t max_checked_case_bytes() {
  return machine_bytes() / 6;
}

}  // namespace quire::tools
