// SPDX-License-Identifier: Apache-2.0
// Which kernel takes an mla_decode, and how its work is cut. Pure: tested without a GPU.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/sm90/mla_decode/variant_table.h"
#include "quire/ops/mla_decode.h"

namespace quire::cuda::sm90::mla_decode {

struct MlaDecodePlan {
  const MlaDecodeVariant* variant = nullptr;
  int tile_tokens = 1;     // whose heads fill an item's rows
  std::int64_t items = 1;  // expected; more of them take longer, but are taken
  std::int64_t most_items = 1;
  DecodeSplit split{};
  std::int64_t slots = 0;  // of pieces in the workspace
  // Multiprocessors are idle beside the attention kernel, and equally long sequences leave nothing to merge.
  bool leaves_room = false;
};

// Empty, or why no kernel takes the problem; the device is not looked at.
std::string refuse_mla_decode_problem(const MlaDecodeProblem& problem);
// Of a problem that is not refused.
MlaDecodePlan plan_mla_decode(const MlaDecodeProblem& problem, int num_sms);

}  // namespace quire::cuda::sm90::mla_decode
