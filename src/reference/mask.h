// SPDX-License-Identifier: Apache-2.0
// The oracle's own evaluation of a mask, one query and one key at a time.
#pragma once

#include <cstdint>

#include "quire/mask.h"
#include "reference/ragged.h"

namespace quire::reference {

// Whether the query `token` sees the key at absolute position `key` of its sequence.
bool is_visible(const Mask& mask, const Token& token, std::int64_t key);

}  // namespace quire::reference
