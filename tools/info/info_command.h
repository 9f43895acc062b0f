// SPDX-License-Identifier: Apache-2.0
// `quire info`: the machine, the backends in this build, and which kernel serves which problem.
#pragma once

#include <string>

namespace quire::tools {

struct InfoOptions {
  std::string folder{};        // of the case files
  std::string device = "cpu";  // where their tensors are
  bool support = false;        // one line per case instead of one per op
};

int run_info(const InfoOptions& options);

}  // namespace quire::tools
