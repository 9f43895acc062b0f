// SPDX-License-Identifier: Apache-2.0
// What an op decided before it ran: which kernel, with which choices, and why the better candidates
// refused. A plan is a pure function of the problem and the machine. QUIRE_LOG=plan prints every
// plan to stderr.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "quire/export.h"

namespace quire {

struct Refusal {
  std::string kernel;  // "cuda/sm90/flash_attention"
  std::string reason;  // "tensors are on cpu"
};

struct QUIRE_API Plan {
  std::string op;
  std::string kernel;  // "reference/flash_attention"; empty: no candidate takes the problem
  std::int64_t workspace_bytes = 0;
  std::vector<std::pair<std::string, std::string>> choices;  // ("blocks", "132"), …
  std::vector<Refusal> refusals;  // of the candidates before it, best first
  std::string nearest;            // without a kernel: the nearest problem that one would take

  bool supported() const { return !kernel.empty(); }
  std::string describe() const;  // one line, stable, for logs and tests
};

}  // namespace quire
