// SPDX-License-Identifier: Apache-2.0
#include "quire/plan.h"

#include <fmt/format.h>

namespace quire {

std::string Plan::describe() const {
  std::string text = op + ": " + (supported() ? kernel : "no kernel");
  for (const auto& [choice, value] : choices) text += fmt::format(", {}={}", choice, value);
  if (workspace_bytes > 0) text += fmt::format(", workspace {} B", workspace_bytes);
  for (const Refusal& refusal : refusals) {
    text += fmt::format("; {} refuses: {}", refusal.kernel, refusal.reason);
  }
  if (!nearest.empty()) text += "; nearest: " + nearest;
  return text;
}

}  // namespace quire
