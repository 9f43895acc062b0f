// SPDX-License-Identifier: Apache-2.0
// What a user of the demo's server asks for.
#pragma once

#include <cstdint>
#include <vector>

namespace quire::tools::demo {

using TokenId = std::int32_t;

struct Request {
  int arrival_step = 0;
  std::vector<TokenId> prompt{};
  std::int64_t max_new_tokens = 1;
  // The prompt starts with the system prompt, whose pages may be shared.
  bool has_system_prompt = false;
};

struct Workload {
  std::vector<TokenId> system_prompt{};
  std::vector<Request> requests{};
};

// Arrivals, prompt and output lengths that overlap, wait and leave; the same for the same seed.
Workload make_workload(int num_requests, std::int64_t system_prompt_length, TokenId vocabulary,
                       std::uint64_t seed);

}  // namespace quire::tools::demo
