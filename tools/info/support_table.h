// SPDX-License-Identifier: Apache-2.0
// Which kernel serves which op, asked of the ops themselves: every tiny and edge case goes through
// `supports`.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/case/case.h"

namespace quire::tools {

struct SupportRow {
  std::string op;
  std::string problem;                // name of the case
  std::string kernel;                 // empty: none
  std::vector<std::string> refusals;  // "cuda/sm90/flash_attention: tensors are on cpu"
};

// device: where the tensors are, "cpu" or "cuda".
std::vector<SupportRow> ask_support(const std::vector<Case>& cases, const std::string& device);

struct OpSupport {
  std::string op;
  std::map<std::string, int> problems_by_kernel;  // "" counts those that nobody takes
  std::set<std::string> refusals;
};

// One entry per op, in the order of the cases.
std::vector<OpSupport> summarise(const std::vector<SupportRow>& rows);

}  // namespace quire::tools
