// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/request.h"

#include "tools/case/random_stream.h"

namespace quire::tools::demo {
namespace {

std::vector<TokenId> random_tokens(std::uint64_t seed, std::int64_t count, TokenId vocabulary) {
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(
        static_cast<TokenId>(integer_at(seed, static_cast<std::uint64_t>(i), vocabulary)));
  }
  return tokens;
}

}  // namespace

Workload make_workload(int num_requests, std::int64_t system_prompt_length, TokenId vocabulary,
                       std::uint64_t seed) {
  const std::uint64_t shapes = seed_of("request shapes", seed);
  Workload workload{.system_prompt = random_tokens(seed_of("system prompt", seed),
                                                   system_prompt_length, vocabulary),
                    .requests = {}};
  int arrival = 0;
  for (int r = 0; r < num_requests; ++r) {
    const auto draw = [&](std::uint64_t what, std::int64_t bound) {
      return integer_at(shapes, static_cast<std::uint64_t>(r) * 8 + what, bound);
    };
    Request request{.arrival_step = arrival,
                    .prompt = {},
                    .max_new_tokens = 4 + draw(0, 9),
                    .has_system_prompt = r % 3 != 2};
    if (request.has_system_prompt) request.prompt = workload.system_prompt;
    const std::vector<TokenId> question = random_tokens(
        seed_of("question", seed + static_cast<std::uint64_t>(r)), 5 + draw(1, 36), vocabulary);
    request.prompt.insert(request.prompt.end(), question.begin(), question.end());
    workload.requests.push_back(request);
    // Now and then two arrive together.
    arrival += static_cast<int>(draw(2, 4));
  }
  return workload;
}

}  // namespace quire::tools::demo
